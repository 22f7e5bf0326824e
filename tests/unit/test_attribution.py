"""Whether a command had the time that it was given: pure arithmetic over two looks at its machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.domain.attribution import Strain, Vitals, strain_between
from app.domain.machine import MonitorEvent

SECOND_NS = 1_000_000_000
LIMIT_NS = 100 * SECOND_NS
BEFORE = Vitals(
    boot_ns=1000 * SECOND_NS,
    process_state="S",
    keeper_lives=True,
    stops=1,
    stopped_ns=7 * SECOND_NS,
    waited_ns=(3 * SECOND_NS, 5 * SECOND_NS),
    ran_ns=(10 * SECOND_NS, 10 * SECOND_NS),
    stolen_ns=400 * SECOND_NS,
    pressure_ns=50 * SECOND_NS,
)


def after(seconds: int, **grown: int) -> Vitals:
    """A look so much later, each total grown by so many seconds (of each virtual CPU alike)."""
    totals: dict[str, Any] = {}
    for name, by in grown.items():
        was = getattr(BEFORE, name)
        by_ns = by * SECOND_NS
        totals[name] = tuple(e + by_ns for e in was) if isinstance(was, tuple) else was + by_ns
    return replace(BEFORE, boot_ns=BEFORE.boot_ns + seconds * SECOND_NS, **totals)


def stop(at_s: float) -> MonitorEvent:
    return MonitorEvent("STOP", {}, int(at_s * SECOND_NS))


def resume(at_s: float) -> MonitorEvent:
    return MonitorEvent("RESUME", {}, int(at_s * SECOND_NS))


def test_a_machine_that_had_all_its_time_lost_nothing() -> None:
    strain = strain_between(BEFORE, after(100, ran_ns=90))
    assert strain.lost_ns == 0
    assert not strain.stalled(LIMIT_NS)


@pytest.mark.parametrize(("lost_s", "stalled"), [(9, False), (10, False), (11, True)])
def test_more_than_a_tenth_of_the_limit_is_a_stall(lost_s: int, stalled: bool) -> None:
    assert strain_between(BEFORE, after(100, stopped_ns=lost_s)).stalled(LIMIT_NS) is stalled
    assert strain_between(BEFORE, after(100, waited_ns=lost_s)).stalled(LIMIT_NS) is stalled


def test_small_losses_of_several_kinds_add_up() -> None:
    strain = strain_between(
        BEFORE,
        after(100, stopped_ns=4, waited_ns=4),
        [stop(1010), resume(1013)],
    )
    assert (strain.stopped_ns, strain.starved_ns, strain.paused_ns) == (
        4 * SECOND_NS,
        4 * SECOND_NS,
        3 * SECOND_NS,
    )
    assert strain.stalled(LIMIT_NS)


def test_a_command_that_sleeps_on_a_busy_host_lost_nothing() -> None:
    """Its machine did not want to run, so what the host was denied, and what others waited for, is not its own."""
    strain = strain_between(BEFORE, after(100, stolen_ns=60, pressure_ns=90))
    assert strain.stolen_ns == 0
    assert strain.pressure_ns == 90 * SECOND_NS
    assert not strain.stalled(LIMIT_NS)


def test_stolen_time_counts_as_far_as_the_machine_ran_in_it() -> None:
    strain = strain_between(BEFORE, after(100, stolen_ns=60, ran_ns=50))
    assert strain.stolen_ns == 30 * SECOND_NS


def test_the_virtual_cpu_that_waited_longest_counts() -> None:
    now = replace(after(100), waited_ns=(4 * SECOND_NS, 45 * SECOND_NS))
    assert strain_between(BEFORE, now).starved_ns == 40 * SECOND_NS


def test_a_stop_under_way_counts_up_to_now() -> None:
    now = replace(after(100), stops=2, stopped_since_boot_ns=1080 * SECOND_NS)
    strain = strain_between(BEFORE, now)
    assert (strain.stops, strain.stopped_ns) == (1, 20 * SECOND_NS)


def test_a_stop_that_began_before_the_command_counts_from_its_start() -> None:
    before = replace(BEFORE, stopped_since_boot_ns=990 * SECOND_NS)
    now = replace(after(100), stopped_ns=37 * SECOND_NS)
    assert strain_between(before, now).stopped_ns == 20 * SECOND_NS


def test_pauses_count_within_the_command_s_time_only() -> None:
    events = [stop(990), resume(1005), resume(1006), stop(1090), stop(1095)]
    assert strain_between(BEFORE, after(100), events).paused_ns == 15 * SECOND_NS
    earlier = [stop(10), resume(900)]
    assert strain_between(BEFORE, after(100), earlier).paused_ns == 0


@pytest.mark.parametrize("end", ["GUEST_PANICKED", "SHUTDOWN"])
def test_a_guest_that_ended_itself_stands_still_by_nobody_elses_doing(end: str) -> None:
    """It is paused until its end is read; soon after a command's start that would be most of the command's time."""
    ended = MonitorEvent(end, {"guest": True}, 1003 * SECOND_NS)
    strain = strain_between(BEFORE, after(100), [stop(1001), resume(1002), ended, stop(1003)])
    assert strain.paused_ns == SECOND_NS
    assert not strain.silenced


def test_a_machine_that_is_gone_has_no_counters_left() -> None:
    gone = Vitals(boot_ns=1100 * SECOND_NS)
    strain = strain_between(BEFORE, gone)
    assert (strain.stopped_ns, strain.starved_ns, strain.stolen_ns) == (0, 0, 0)
    assert strain.pressure_ns is None


def test_evidence_is_in_seconds() -> None:
    strain = Strain(5, 100 * SECOND_NS, stops=1, stopped_ns=SECOND_NS, starved_ns=SECOND_NS // 2)
    assert strain.as_evidence() == {
        "over_seconds": 100.0,
        "stopped_seconds": 1.0,
        "paused_seconds": 0.0,
        "starved_seconds": 0.5,
        "stolen_seconds": 0.0,
        "pressure_seconds": None,
        "lost_seconds": 1.5,
        "stops": 1,
    }
    assert Vitals(9 * SECOND_NS, "T", True, 1, 0, 2 * SECOND_NS).as_evidence() == {
        "process_state": "T",
        "keeper_lives": True,
        "stopped_for_seconds": 7.0,
        "stops": 1,
    }


@pytest.mark.parametrize(("waited_s", "silenced"), [(49, False), (50, False), (51, True)])
def test_who_lost_more_than_half_of_the_time_may_have_been_silenced(
    waited_s: int, silenced: bool
) -> None:
    assert strain_between(BEFORE, after(100, waited_ns=waited_s)).silenced is silenced
    assert not strain_between(BEFORE, BEFORE).silenced
