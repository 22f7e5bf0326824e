"""Snapshots, their builds, and hosts."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from promigence.types.runs import Check
from promigence.types.terms import Shape

BuildState = Literal[
    "queued", "building", "verifying", "verified", "refused", "failed", "cancelled"
]


class BuildLine(TypedDict):
    n: int
    step: str
    text: str


class Build(TypedDict):
    """A build as it stands; `log` holds the lines that are new since the last look."""

    build_id: str
    name: str
    state: BuildState
    step: str | None
    log: list[BuildLine]
    snapshot: str | None
    error: dict[str, Any] | None
    cost_usd: float


class Snapshot(TypedDict):
    """One immutable, verified version; `snapshot` is `name@version`."""

    snapshot: str
    name: str
    version: int
    latest: bool
    state: Literal["verified", "stale"]
    image: str
    shape: Shape
    egress: list[str]
    restore_key: str
    accelerator: Literal["kvm", "tcg"]
    created_at: str
    bytes: int
    checks: list[Check]
    provenance: dict[str, Any]


class Deleted(TypedDict):
    deleted: list[str]


class HostQuarantine(TypedDict):
    """Why a host gets no forks. It comes back by a self-test, or by its operator where `by_operator` is true."""

    reason: str
    kinds: list[str]
    since: str
    by_operator: bool
    last_test: str | None


class Host(TypedDict):
    """A host and its fitness; `missing` says in words what it cannot do."""

    host_id: str
    state: Literal["up", "draining", "quarantined", "lost"]
    quarantine: HostQuarantine | None
    accelerator: Literal["kvm", "tcg"]
    accelerator_reason: str
    cpu_model: str
    vcpus: int
    memory_mib: int
    disk_gib: int
    slots: int
    slots_free: int
    restore_keys: list[str]
    mounted: list[str]
    missing: list[str]
    heartbeat_age_seconds: float
