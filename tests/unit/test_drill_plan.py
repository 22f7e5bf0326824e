"""What a seed means, always the same, and always all of what a drill is for."""

from __future__ import annotations

import pytest

from drills.cap.plan import (
    COUNT,
    FIRST_FAULT_S,
    LAST_FAULT_S,
    LATEST_END_S,
    PARTS,
    Target,
    plan,
)
from drills.forwarder import Outage


@pytest.mark.parametrize("seed", range(1, 21))
def test_every_seed_strikes_everything_in_its_time(seed: int) -> None:
    planned = plan(seed)
    targets = [fault.target for fault in planned.faults]
    times = [fault.at_s for fault in planned.faults]
    assert set(targets) == set(Target)
    assert targets.count(Target.KEEPER) >= 2
    assert targets.count(Target.DATABASE) == 1
    assert times == sorted(times)
    assert min(times) >= FIRST_FAULT_S
    assert max(times) <= LAST_FAULT_S


@pytest.mark.parametrize("seed", range(1, 21))
def test_every_seed_has_commands_that_end_and_commands_that_money_ends(seed: int) -> None:
    planned = plan(seed)
    ending = [life for life in planned.lives if not life.endless]
    assert len(planned.lives) == COUNT
    assert 0 < len(ending) < COUNT / 2
    assert all(1 <= life.seconds <= LATEST_END_S for life in ending)
    assert planned.cap_share >= 1.0


def test_a_seed_is_the_same_plan_every_time_and_no_other_seed_is() -> None:
    assert plan(17) == plan(17)
    assert plan(17).faults != plan(18).faults
    assert plan(17).lives != plan(18).lives


def test_both_kinds_of_outage_have_their_turn() -> None:
    assert {plan(seed).outage for seed in (1, 2)} == set(Outage)


def test_a_plan_says_what_it_will_do() -> None:
    said = str(plan(17))
    assert said.startswith("seed 17: ")
    assert all(f"{part.value}@" in said for part in PARTS)
