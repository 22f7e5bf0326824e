"""How many hosts are wanted, and who may go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.fleet import Bounds, FleetState, Instance, Lifecycle
from app.domain.machine import Accelerator, Fingerprint, RestoreKey, Shape
from app.domain.placement import Host, Waiting
from app.domain.quarantine import Quarantine
from app.domain.scaling import IDLE_NS, REGISTER_NS, TOO_LARGE, Plan, Sight, plan
from app.domain.warm import WarmTarget

KEY = RestoreKey("qemu-10", "pc-q35-10.0", Accelerator.KVM, "icelake")
SHAPE = Shape(1, 512, 4)
BOUNDS = Bounds(0, 10)
SHUT = Quarantine("it broke 3 forks in a row", (), (), 0, 0)


def host(name: str, used: int = 0, **more: Any) -> Host:
    """With room for 8 forks, of which some are taken."""
    seen = Fingerprint(name, f"boot-{name}", Accelerator.KVM, "", (KEY,), "icelake", 8, 4096, 32)
    there = Host(name, seen, 4096 - used * 512, 32 - used * 4, 8, 8 - used)
    return replace(there, **more)


def forks(count: int, **more: Any) -> tuple[Waiting, ...]:
    made = (Waiting(f"f{n}", "r", "bundle", str(KEY), SHAPE) for n in range(count))
    return tuple(replace(each, **more) for each in made)


def instance(name: str, lifecycle: Lifecycle = Lifecycle.IN_SERVICE, **more: Any) -> Instance:
    return replace(Instance(name, "us-east-1a", lifecycle, protected=True), **more)


def fleet(*names: str, desired: int | None = None, **more: Any) -> FleetState:
    there = tuple(map(instance, names))
    state = FleetState(len(names) if desired is None else desired, 0, 10, there)
    return replace(state, **more)


def target(hosts: int, key: str = str(KEY)) -> WarmTarget:
    return WarmTarget("p", "suite", None, hosts, "suite@1", "bundle", key, SHAPE)


def decide(
    waiting: tuple[Waiting, ...] = (),
    hosts: tuple[Host, ...] = (),
    state: FleetState | None = None,
    bounds: Bounds = BOUNDS,
    **more: Any,
) -> Plan:
    sight = Sight(waiting, hosts, (), fleet() if state is None else state)
    return plan(replace(sight, **more), bounds)


def long_empty(*names: str) -> dict[str, int]:
    return dict.fromkeys(names, IDLE_NS)


def test_what_fits_needs_nobody() -> None:
    told = decide(forks(8), (host("a"),), fleet("a"))
    assert (told.wanted_slots, told.wanted_hosts, told.present_hosts) == (8, 1, 1)
    assert told.desire is None


@pytest.mark.parametrize(("count", "desire"), [(9, 2), (16, 2), (17, 3), (5000, 10)])
def test_what_waits_beyond_the_room_asks_for_hosts_at_once_within_the_bounds(
    count: int, desire: int
) -> None:
    told = decide(forks(count), (host("a"),), fleet("a"))
    assert told.desire == desire
    assert told.wanted_hosts == desire
    assert told.wanted_slots == count


def test_what_is_on_its_way_is_not_asked_for_again() -> None:
    waiting, there = forks(24), (host("a"),)
    asked = fleet("a", desired=3)
    assert decide(waiting, there, asked).desire is None
    launched = fleet("a", "b", "c")
    assert decide(waiting, there, launched).desire is None
    assert decide(forks(25), there, launched).desire == 4


def test_an_instance_that_never_registers_is_told_and_another_is_asked_for() -> None:
    told = decide(
        forks(9), (host("a"),), fleet("a", "b"), seen_for_ns={"a": REGISTER_NS, "b": REGISTER_NS}
    )
    assert told.silent == ("b",)
    assert told.desire == 3


def test_two_that_never_registered_are_enough_to_ask_for_no_more() -> None:
    long = dict.fromkeys("abc", REGISTER_NS)
    told = decide(forks(99), (host("a"),), fleet("a", "b", "c"), seen_for_ns=long)
    assert told.silent == ("b", "c")
    assert told.desire is None
    # One that was heard before is another trouble: it is replaced.
    heard = (host("a"), host("c", alive=False))
    assert decide(forks(16), heard, fleet("a", "b", "c"), seen_for_ns=long).desire == 4


@pytest.mark.parametrize(
    "change",
    [{"alive": False}, {"draining": True}, {"quarantine": SHUT}, {"gone_at_ns": 5}],
)
def test_a_host_that_takes_nothing_is_replaced_and_not_counted_twice(
    change: dict[str, Any],
) -> None:
    assert decide(forks(8), (host("a", **change),), fleet("a")).desire == 2
    assert decide(forks(8), (host("a", **change),), fleet("a", "b")).desire is None


def test_of_hosts_that_nobody_knows_one_is_asked_for() -> None:
    told = decide(forks(5000))
    assert told.desire == 1
    assert told.hopeless == ()
    assert decide().desire is None
    assert decide(bounds=Bounds(2, 10)).desire == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"restore_key": "other/x/kvm/y"}, "cannot restore other/x/kvm/y"),
        ({"held_by": "z"}, "the candidate is not stored yet: only z has it"),
        ({"shape": Shape(1, 8192, 4)}, TOO_LARGE),
    ],
)
def test_who_could_be_taken_by_nobody_is_told_and_does_not_count(
    change: dict[str, Any], why: str
) -> None:
    told = decide(forks(9, **change), (host("a", used=8),), fleet("a"))
    assert told.desire is None
    assert told.hopeless == ((why, 9),)
    assert told.wanted_slots == 8


@pytest.mark.parametrize(
    ("there", "change"),
    [
        (host("a", used=8), {"held_by": "a"}),
        (host("a", used=8, fetches=False, holds=("bundle",)), {}),
    ],
)
def test_what_only_a_host_that_is_there_could_take_waits_for_it_and_asks_for_no_other(
    there: Host, change: dict[str, Any]
) -> None:
    told = decide(forks(9, **change), (there,), fleet("a"))
    assert (told.desire, told.hopeless, told.wanted_slots) == (None, (), 17)


def test_a_host_of_an_older_build_may_be_the_one_that_helps() -> None:
    old = replace(host("b").fingerprint, restore_keys=(replace(KEY, qemu_build="qemu-9"),))
    there = (host("a", used=8), host("b", used=8, fingerprint=old))
    waiting = forks(3, restore_key=str(old.restore_keys[0]))
    assert decide(waiting, there, fleet("a", "b")).desire == 3


def test_a_host_goes_after_it_was_empty_for_long_one_at_a_time() -> None:
    there = (host("a", used=1), host("b"), host("c"))
    state = fleet("a", "b", "c")
    assert decide((), there, state).retire == ()
    nearly = {"b": IDLE_NS - 1, "c": IDLE_NS}
    assert decide((), there, state, empty_for_ns=nearly).retire == ("c",)
    told = decide((), there, state, empty_for_ns=long_empty("b", "c"))
    assert told.retire == ("b",)
    assert told.desire is None
    begun = (host("a", used=1), host("b", retiring=True), host("c"))
    assert decide((), begun, state, empty_for_ns=long_empty("b", "c")).retire == ("b",)


def test_nobody_goes_while_anything_waits() -> None:
    there, state = (host("a", used=8), host("b")), fleet("a", "b")
    told = decide(forks(1), there, state, empty_for_ns=long_empty("b"))
    assert told.retire == ()
    hopeless = forks(1, restore_key="other/x/kvm/y")
    assert decide(hopeless, there, state, empty_for_ns=long_empty("b")).retire == ("b",)


@pytest.mark.parametrize(
    ("bounds", "state"),
    [
        (Bounds(2, 10), fleet("a", "b")),
        (BOUNDS, fleet("a", "b", least=2)),
    ],
)
def test_the_least_stay(bounds: Bounds, state: FleetState) -> None:
    there = (host("a"), host("b"))
    assert decide((), there, state, bounds, empty_for_ns=long_empty("a", "b")).retire == ()


def test_a_warm_target_keeps_and_asks_for_hosts() -> None:
    there, state = (host("a"), host("b")), fleet("a", "b")
    idle = long_empty("a", "b")
    assert decide((), there, state, targets=(target(2),), empty_for_ns=idle).retire == ()
    told = decide((), there, state, targets=(target(3), target(2)))
    assert (told.desire, told.wanted_hosts, told.wanted_slots) == (3, 3, 3)
    assert decide((), there, state, targets=(target(3, "other"),)).desire is None


def test_of_two_idle_hosts_the_one_goes_that_is_less_warm() -> None:
    there = (host("a", mounted=("bundle",)), host("b"))
    told = decide(
        (), there, fleet("a", "b"), targets=(target(1),), empty_for_ns=long_empty("a", "b")
    )
    assert told.retire == ("b",)


def test_a_host_with_the_only_copies_holds_up_nobody_else() -> None:
    there = (host("a", fetches=False, holds=("bundle",)), host("b", fetches=False))
    told = decide((), there, fleet("a", "b"), empty_for_ns=long_empty("a", "b"))
    assert told.retire == ("b",)


def test_what_has_not_come_and_is_not_needed_is_given_up_where_nobody_can_be_hurt() -> None:
    there = (host("a", used=1),)
    state = fleet("a", desired=4, protects_new=True)
    assert decide((), there, state).desire is None
    assert decide((), there, state, unmet_for_ns=IDLE_NS).desire == 1
    unprotected = replace(state, protects_new=False)
    assert decide((), there, unprotected, unmet_for_ns=IDLE_NS).desire is None
    assert decide(forks(31), there, state, unmet_for_ns=IDLE_NS).desire is None
    lowered = decide(forks(31), there, state, Bounds(0, 2), unmet_for_ns=IDLE_NS)
    assert lowered.desire == 2


def test_whoever_is_in_service_and_unprotected_is_protected() -> None:
    there = (
        instance("a"),
        instance("b", protected=False),
        instance("c", Lifecycle.PENDING, protected=False),
        instance("d", Lifecycle.ENDING, protected=False),
    )
    assert decide(state=fleet("a", instances=there, desired=3)).protect == ("b",)


def test_without_a_fleet_it_is_only_told() -> None:
    told = plan(Sight(forks(20), (host("a", used=4),), ()), BOUNDS)
    assert (told.wanted_slots, told.wanted_hosts, told.present_hosts) == (24, 3, 1)
    assert (told.desire, told.retire, told.protect) == (None, (), ())


HOSTS = st.lists(
    st.builds(
        host,
        st.sampled_from("abcdef"),
        st.integers(0, 8),
        alive=st.booleans(),
        draining=st.booleans(),
        retiring=st.booleans(),
        quarantine=st.sampled_from([None, SHUT]),
    ),
    unique_by=lambda each: each.host_id,
)
INSTANCES = st.lists(
    st.builds(
        instance, st.sampled_from("abcdefgh"), st.sampled_from(Lifecycle), protected=st.booleans()
    ),
    unique_by=lambda each: each.instance_id,
)


@given(
    HOSTS,
    INSTANCES,
    st.integers(0, 100),
    st.integers(0, 12),
    st.integers(0, 4),
    st.integers(4, 12),
    st.integers(0, 6),
)
def test_whatever_is_seen_the_bounds_hold_and_nobody_with_forks_goes(
    hosts: list[Host],
    instances: list[Instance],
    waiting: int,
    desired: int,
    least: int,
    most: int,
    warm: int,
) -> None:
    state = FleetState(desired, 0, 10, tuple(instances), protects_new=True)
    bounds = Bounds(least, most)
    told = decide(
        forks(waiting),
        tuple(hosts),
        state,
        bounds,
        targets=(target(warm),),
        empty_for_ns=long_empty(*"abcdefgh"),
        unmet_for_ns=IDLE_NS,
    )
    by_name = {each.host_id: each for each in hosts}
    living = {each.instance_id for each in state.living}
    for name in told.retire:
        assert name in living
        assert by_name[name].retiring or by_name[name].free_slots == by_name[name].slots
    new = [name for name in told.retire if not by_name[name].retiring]
    assert len(new) <= 1
    if new:
        assert waiting == 0
        assert told.desire is None
        assert len(living) - len(told.retire) >= least
        assert sum(each.takes_forks for each in hosts) - 1 >= max(warm, least)
    if told.desire is not None:
        assert min(least, 10) <= told.desire <= max(min(most, 10), len(living))
        # Less is asked for only of what has not come.
        assert told.desire >= min(desired, len(living))
