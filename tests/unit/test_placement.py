"""Where forks go, and why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.machine import Accelerator, Fingerprint, RestoreKey, Shape
from app.domain.placement import (
    MAX_NAMED,
    MAX_WHYS,
    Against,
    Host,
    Placement,
    Policy,
    Waiting,
    choose,
    could_take,
    grouped,
    slots_for,
    unfit,
)
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


def test_a_host_that_could_not_mount_it_a_moment_ago_comes_last_and_says_why() -> None:
    failed = host("b", unmountable=(("bundle", "could not be mounted: throttled"),))
    (placed,) = choose([waiting()], [host("a", free_slots=1), failed])
    assert placed.host_id == "a"
    assert [each.why for each in placed.against] == ["could not be mounted: throttled"]
    (other,) = choose([waiting(bundle_id="another")], [host("a", free_slots=1), failed])
    assert other.host_id == "b"
    (only,) = choose([waiting()], [failed])
    assert only.host_id == "b"


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
        ({"gone_at_ns": 0}, {}, "the cloud takes it back at 1970-01-01T00:00:00.000Z"),
        ({"quarantine": SHUT}, {}, "in quarantine: it broke 3"),
        ({}, {"avoid_hosts": ("a",)}, "earlier attempt"),
        ({}, {"restore_key": "other/x/kvm/y"}, "cannot restore"),
        ({}, {"held_by": "b"}, "only b has it"),
        ({"fetches": False}, {}, "not in its own folder"),
        ({"free_slots": 0}, {}, "no free slot"),
        ({"free_memory_mib": 511}, {}, "memory"),
        ({"free_disk_gib": 3}, {}, "disk"),
    ],
)
def test_why_not(change: dict[str, Any], fork: dict[str, Any], reason: str) -> None:
    assert reason in (unfit(waiting(**fork), host(**change)) or "")


@pytest.mark.parametrize(
    ("change", "fork"),
    [
        ({}, {}),
        ({}, {"held_by": "a"}),
        ({"fetches": False}, {"held_by": "a"}),
        ({"fetches": False, "holds": ("bundle",)}, {}),
        ({"fetches": False, "mounted": ("bundle",)}, {}),
        ({"fetches": False}, {"restore_key": None}),
        ({"gone_at_ns": None}, {"avoid_hosts": ("b",)}),
    ],
)
def test_why_yes(change: dict[str, Any], fork: dict[str, Any]) -> None:
    assert unfit(waiting(**fork), host(**change)) is None
    assert could_take(waiting(**fork), host(**change))


@pytest.mark.parametrize(
    ("policy", "free", "count", "shares"),
    [
        # Three warm hosts of 8 slots: a step of 24 fills them, one of 12 is spread, or packed.
        (Policy.SPREAD, (8, 8, 8), 24, (8, 8, 8)),
        (Policy.SPREAD, (8, 8, 8), 12, (4, 4, 4)),
        (Policy.SPREAD, (8, 4, 2), 6, (5, 1, 0)),
        (Policy.PACK, (8, 8, 8), 24, (8, 8, 8)),
        (Policy.PACK, (8, 8, 8), 12, (0, 4, 8)),
        (Policy.PACK, (8, 4, 2), 6, (0, 4, 2)),
    ],
)
def test_equally_warm_hosts_share_by_the_policy(
    policy: Policy, free: tuple[int, ...], count: int, shares: tuple[int, ...]
) -> None:
    hosts = [
        host(name, mounted=("bundle",), free_slots=slots)
        for name, slots in zip("abc", free, strict=True)
    ]
    placed = choose([waiting(number) for number in range(count)], hosts, policy)
    assert tuple(sum(each.host_id == name for each in placed) for name in "abc") == shares


@pytest.mark.parametrize("policy", Policy)
def test_a_cold_host_mounts_only_when_no_warm_one_has_room(policy: Policy) -> None:
    warm = [host(name, mounted=("bundle",), free_slots=2, slots=2) for name in "ab"]
    placed = choose([waiting(n) for n in range(5)], [*warm, host("c"), host("d")], policy)
    assert [each.host_id in "ab" for each in placed] == [True] * 4 + [False]
    assert placed[-1].reason.startswith("mounts it first: no warm host has room")


def test_a_candidate_goes_to_the_host_that_has_it_and_to_no_other() -> None:
    candidate = waiting(held_by="a")
    assert choose([candidate], [host("a", free_slots=0), host("b", mounted=("bundle",))]) == ()
    (placed,) = choose([candidate], [host("a"), host("b", mounted=("bundle",))])
    assert placed.host_id == "a"
    assert "the only host that has the candidate" in placed.reason
    # Where it failed there is no other to try it on.
    (again,) = choose([replace(candidate, avoid_hosts=("a",))], [host("a"), host("b")])
    assert again.host_id == "a"


def test_what_stood_against_the_others_is_told() -> None:
    hosts = [
        host("a", mounted=("bundle",), free_slots=3),
        host("b", mounted=("bundle",), free_slots=2),
        host("c", mounted=("bundle",), free_slots=3),
        host("d"),
        host("e", quarantine=SHUT),
        host("f", quarantine=SHUT),
    ]
    (placed,) = choose([waiting()], hosts)
    assert placed.host_id == "c"
    assert placed.reason == "warm here; spread: room for 3 such forks before it"
    assert placed.against == (
        Against("in quarantine: it broke 3 forks in a row", ("e", "f")),
        Against("as much room: its name decided", ("a",)),
        Against("less room", ("b",)),
        Against("would have to mount the snapshot first", ("d",)),
    )


def test_what_is_told_of_many_hosts_is_bounded_and_counts_them_all() -> None:
    whys = {f"host{n:04}": f"reason {n % 50}" + "x" * 1000 for n in range(1000)}
    told = grouped(whys)
    assert len(told) == MAX_WHYS + 1
    assert sum(len(each.hosts) + each.more for each in told) == 1000
    assert all(len(each.hosts) <= MAX_NAMED for each in told)


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
        gone_at_ns=st.sampled_from([None, 5]),
        mounted=st.sampled_from([(), ("bundle",)]),
        fetches=st.booleans(),
        holds=st.sampled_from([(), ("bundle",)]),
    ),
    unique_by=lambda each: each.host_id,
).map(lambda found: [replace(each, free_slots=min(each.slots, each.free_slots)) for each in found])
AVOIDED = st.lists(NAMES, unique=True).map(tuple)


FORKS = st.lists(
    st.builds(
        lambda avoided, held_by, key: {
            "avoid_hosts": avoided,
            "held_by": held_by if key else None,
            "restore_key": key,
        },
        AVOIDED,
        st.none() | NAMES,
        st.sampled_from([str(KEY), None, "other/x/kvm/y"]),
    ),
    max_size=6,
)


@given(HOSTS, FORKS, st.sampled_from(Policy))
def test_nobody_is_placed_where_it_cannot_run_and_nobody_is_stranded(
    hosts: list[Host], changes: list[dict[str, Any]], policy: Policy
) -> None:
    forks = [waiting(number, **change) for number, change in enumerate(changes)]
    placed = {each.fork_id: each for each in choose(forks, hosts, policy)}
    left = {each.host_id: each for each in hosts}
    for each in placed.values():
        left[each.host_id] = left[each.host_id].reserve(each.shape)
    assert all(each.free_slots >= 0 for each in left.values())
    for fork in forks:
        able = {each.host_id for each in hosts if _is_able(fork, each)}
        wanted = able - set(fork.avoid_hosts) or able
        if fork.fork_id in placed:
            mine = placed[fork.fork_id]
            assert mine.host_id in wanted
            assert (mine.host_id in fork.avoid_hosts) == ("an earlier attempt" in mine.reason)
            assert sum(len(some.hosts) for some in mine.against) == len(hosts) - 1
            _check_warm_first(mine, fork, hosts, left, wanted)
        else:
            # It waits for a place to become free, and for nothing else.
            assert not any(left[name].free_slots for name in wanted)


def _is_able(fork: Waiting, there: Host) -> bool:
    """Said again from the rules, in other words than the code's."""
    if not there.alive or there.draining or there.quarantine or there.gone_at_ns is not None:
        return False
    if there.slots == 0:
        return False
    if fork.restore_key is None:
        return True
    if fork.held_by is not None and fork.held_by != there.host_id:
        return False
    has = "bundle" in there.mounted + there.holds or there.fetches or fork.held_by is not None
    return fork.restore_key == str(KEY) and has


def _check_warm_first(
    mine: Placement, fork: Waiting, hosts: list[Host], left: dict[str, Host], wanted: set[str]
) -> None:
    """A cold host was taken only if no warm one has room left."""
    warm = {each.host_id for each in hosts if "bundle" in each.mounted}
    if fork.restore_key is not None and mine.host_id not in warm:
        assert not any(left[name].free_slots for name in wanted & warm)
