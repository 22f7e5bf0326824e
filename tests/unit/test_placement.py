"""Where forks go, and why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.machine import Accelerator, Fingerprint, RestoreKey, Shape
from app.domain.placement import Host, Waiting, choose, slots_for, unfit
from app.domain.quarantine import Quarantine

KEY = RestoreKey("qemu-10", "pc-q35-10.0", Accelerator.TCG, "qemu64")
SHAPE = Shape(1, 512, 4)
SHUT = Quarantine("it broke 3 forks in a row", (), (), 0, 0)


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
        ({"quarantine": SHUT}, {}, "in quarantine: it broke 3"),
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


def test_a_host_that_failed_a_fork_is_passed_over_while_another_could_ever_take_it() -> None:
    full = host("b", free_slots=0)
    assert choose([waiting(avoid_hosts=("a",))], [host("a"), full]) == ()
    (placed,) = choose([waiting(avoid_hosts=("a",))], [host("a"), host("b")])
    assert placed.host_id == "b"
    assert "earlier attempt" not in placed.reason


@pytest.mark.parametrize(
    "other",
    [
        {"alive": False},
        {"draining": True},
        {"quarantine": SHUT},
        {"slots": 0, "free_slots": 0},
    ],
)
def test_where_no_other_could_ever_take_it_a_second_try_is_better_than_none(
    other: dict[str, Any],
) -> None:
    (placed,) = choose([waiting(avoid_hosts=("a",))], [host("a"), host("b", **other)])
    assert placed.host_id == "a"
    assert "an earlier attempt failed here, and no other host could take it" in placed.reason


NAMES = st.sampled_from(["a", "b", "c", "d"])
HOSTS = st.lists(
    st.builds(
        host,
        NAMES,
        alive=st.booleans(),
        draining=st.booleans(),
        quarantine=st.sampled_from([None, SHUT]),
        slots=st.integers(0, 3),
        free_slots=st.just(0) | st.just(3),
    ),
    unique_by=lambda each: each.host_id,
).map(lambda found: [replace(each, free_slots=min(each.slots, each.free_slots)) for each in found])
AVOIDED = st.lists(NAMES, unique=True).map(tuple)


@given(HOSTS, st.lists(AVOIDED, max_size=6))
def test_nobody_is_placed_where_forks_are_not_taken_and_nobody_is_stranded(
    hosts: list[Host], avoided: list[tuple[str, ...]]
) -> None:
    forks = [waiting(number, avoid_hosts=each) for number, each in enumerate(avoided)]
    placed = {each.fork_id: each for each in choose(forks, hosts)}
    left = {each.host_id: each.free_slots for each in hosts}
    for each in placed.values():
        left[each.host_id] -= 1
    assert all(slots >= 0 for slots in left.values())
    for fork in forks:
        able = {each.host_id for each in hosts if each.takes_forks and each.slots > 0}
        wanted = able - set(fork.avoid_hosts) or able
        if fork.fork_id in placed:
            assert placed[fork.fork_id].host_id in wanted
            again = placed[fork.fork_id].host_id in fork.avoid_hosts
            assert again == ("an earlier attempt" in placed[fork.fork_id].reason)
        else:
            # It waits for a place to become free, and for nothing else.
            assert not any(left[name] for name in wanted)
