"""The fork contract: each probe, sound and broken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.domain.checks import at_barrier, marker_exit, on_channel, unsound
from app.domain.machine import Awake, Identity, Probe

TOLD = Identity("fork_1", "fork-1", "gen", "ab" * 16, "cd" * 16, b"x" * 64)
AWAKE = Awake("cd" * 16, "boot", "0f" * 16, 10**18, 10**18, "fork-1", "ab" * 16, True, True)
MARKER = "00000001" + "0" * 24
PROBE = Probe(marker_exit(MARKER), "disk", MARKER, (), ("lo",), False)


def test_a_sound_fork() -> None:
    checks = (*at_barrier(AWAKE, TOLD, "boot", 0.1), *on_channel(PROBE, MARKER, "disk", (), 0.2))
    assert unsound(checks) is None
    names = "barrier warm entropy clock identity disk channel egress"
    assert [check.name for check in checks] == names.split()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"nonce": "00" * 16}, "barrier"),
        ({"boot_id": "other"}, "warm"),
        ({"reseeded": False}, "entropy"),
        ({"sample": "0" * 32}, "entropy"),
        ({"sample": ""}, "entropy"),
        ({"guest_wall_ns": 10**18 + 2_000_000_001}, "clock"),
        ({"guest_wall_ns": 10**18 - 2_000_000_001}, "clock"),
        ({"hostname": "template"}, "identity"),
        ({"machine_id": "00" * 16}, "identity"),
        ({"host_key_sound": False}, "identity"),
    ],
)
def test_what_breaks_at_the_barrier(change: dict[str, object], name: str) -> None:
    broken = unsound(at_barrier(replace(AWAKE, **change), TOLD, "boot", 0))  # type: ignore[arg-type]
    assert broken is not None
    assert broken.name == name


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"disk_id": "other"}, "disk"),
        ({"marker": "stale"}, "disk"),
        ({"foreign_markers": ("x",)}, "disk"),
        ({"exit_code": 0}, "channel"),
        ({"interfaces": ("eth0", "lo")}, "egress"),
        ({"refused_target_reached": True}, "egress"),
    ],
)
def test_what_breaks_on_the_channel(change: dict[str, object], name: str) -> None:
    broken = unsound(on_channel(replace(PROBE, **change), MARKER, "disk", (), 0))  # type: ignore[arg-type]
    assert broken is not None
    assert broken.name == name
