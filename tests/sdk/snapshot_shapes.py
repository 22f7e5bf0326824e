"""Builds and snapshots of the wire; tests take them by `shapes`."""

from __future__ import annotations

from promigence.types import Build, BuildLine, Snapshot

INSTANT = "2026-11-30T17:20:04Z"


def build(state: str = "building", *lines: BuildLine) -> Build:
    return {
        "build_id": "b-1",
        "name": "task-suite",
        "state": state,  # type: ignore[typeddict-item]
        "step": "setup 1 of 1",
        "log": list(lines),
        "snapshot": "task-suite@1" if state == "verified" else None,
        "rebuilds": None,
        "error": None,
        "cost_usd": 0.01,
    }


def snapshot(version: int = 1) -> Snapshot:
    return {
        "snapshot": f"task-suite@{version}",
        "name": "task-suite",
        "version": version,
        "latest": True,
        "state": "verified",
        "restore": {
            "needs": "10.0.8/pc-q35-10.0/tcg/qemu64",
            "keys": ["10.0.8/pc-q35-10.0/tcg/qemu64"],
            "serving": ["h-1"],
            "able": ["h-1"],
            "why": None,
        },
        "image": "debian-12",
        "shape": {"vcpus": 1, "memory_mib": 512, "disk_gib": 4},
        "egress": [],
        "restore_key": "10.0.8/pc-q35-10.0/tcg/qemu64",
        "accelerator": "tcg",
        "created_at": INSTANT,
        "bytes": 600_000_000,
        "bundles": [],
        "warm": None,
        "checks": [],
        "provenance": {},
    }
