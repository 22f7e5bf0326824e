"""Where forks go, and why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.domain.machine import Accelerator, Fingerprint, RestoreKey, Shape
from app.domain.placement import Host, Waiting, choose, slots_for, unfit

KEY = RestoreKey("qemu-10", "pc-q35-10.0", Accelerator.TCG, "qemu64")
SHAPE = Shape(1, 512, 4)


def host(name: str = "a", **more: object) -> Host:
    print_ = Fingerprint(name, "boot", Accelerator.TCG, "", (KEY,), "cpu", 8, 4096, 100)
    return replace(Host(name, print_, 4096, 100, 8, 8), **more)  # type: ignore[arg-type]


def waiting(number: int = 0, **more: object) -> Waiting:
    return replace(Waiting(f"f{number}", "r", "bundle", str(KEY), SHAPE), **more)  # type: ignore[arg-type]


def test_warm_comes_first_then_free_room() -> None:
    cold, warm = host("cold"), host("warm", mounted=("bundle",), free_slots=1)
    placed = choose([waiting(n) for n in range(3)], [cold, warm])
    assert [each.host_id for each in placed] == ["warm", "cold", "cold"]
    assert "warm" in placed[0].reason


def test_room_is_reserved_in_full() -> None:
    placed = choose([waiting(n) for n in range(20)], [host(free_memory_mib=1100)])
    assert len(placed) == 2


def test_a_fork_that_fits_nowhere_holds_up_nobody_else() -> None:
    large = waiting(0, shape=Shape(1, 1 << 20, 4))
    assert [each.fork_id for each in choose([large, waiting(1)], [host()])] == ["f1"]


@pytest.mark.parametrize(
    ("change", "fork", "reason"),
    [
        ({"alive": False}, {}, "heartbeat"),
        ({"draining": True}, {}, "draining"),
        ({}, {"avoid_hosts": ("a",)}, "earlier attempt"),
        ({}, {"restore_key": "other/x/kvm/y"}, "cannot restore"),
        ({"free_slots": 0}, {}, "memory"),
        ({"free_disk_gib": 3}, {}, "disk"),
    ],
)
def test_why_not(change: dict[str, Any], fork: dict[str, Any], reason: str) -> None:
    assert reason in (unfit(waiting(**fork), host(**change)) or "")


def test_slots_are_bounded_by_memory_disk_and_count() -> None:
    assert slots_for(SHAPE, host(), free=False) == 8
    assert slots_for(Shape(1, 2048, 4), host(), free=False) == 2
    assert slots_for(Shape(1, 512, 60), host(), free=True) == 1
