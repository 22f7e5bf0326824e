"""The drill's judges see each violation that is planted, and nothing in a step that went as it should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from drills.cap.judge import LATE_NS, Broken, Evidence, Law, judge, lateness_ms
from drills.cap.plan import ENDLESS_S, Life
from drills.rows import Account, Attempt
from drills.watch import Seen
from promigence.types import ForkReport, Report

SECOND_NS = 1_000_000_000
RATE = 36_000  # ten micro-dollars a second
LEASE_NS = 60 * SECOND_NS
LIVES = (Life(20, 0), Life(ENDLESS_S, 0), Life(ENDLESS_S, 0))


def test_a_step_that_went_well_breaks_no_law() -> None:
    assert judge(evidence()) == []


def test_a_charge_above_the_cap_is_seen() -> None:
    assert laws(planted(charged_micros=5_000, budget_micros=5_100)) >= {Law.OVER_CAP}


def test_a_budget_above_the_cap_is_seen() -> None:
    assert laws(planted(budget_micros=3_000, pool_micros=1_300)) >= {Law.OVER_CAP}


def test_what_is_still_granted_above_the_cap_is_seen() -> None:
    assert laws(planted(granted_micros=500)) >= {Law.OVER_CAP, Law.ACCOUNT}


@pytest.mark.parametrize(
    "change",
    [
        {"pool_micros": 101},
        {"granted_micros": 1, "pool_micros": 99},
        {"booked": (100, 0, 1_699)},
    ],
)
def test_sums_that_are_wrong_are_seen(change: dict[str, Any]) -> None:
    assert laws(planted(**change)) == {Law.ACCOUNT}


def test_a_part_below_zero_is_seen() -> None:
    below = planted(pool_micros=-1, charged_micros=1_801, booked=(-1, 0, 1_801))
    assert laws(below) >= {Law.ACCOUNT}


@pytest.mark.parametrize(
    "change",
    [
        {"charged_micros": 201},  # not what its life costs
        {"tasks_micros": 151},  # parts that are more than the whole
        {"closed_boot_ns": None},
        {"closed_boot_ns": 61 * SECOND_NS},  # lived longer than it was charged
    ],
)
def test_an_attempt_that_is_charged_wrong_is_seen(change: dict[str, Any]) -> None:
    whole = evidence()
    first, *rest = whole.account.attempts
    account = replace(whole.account, attempts=(replace(first, **change), *rest))
    assert laws(replace(whole, account=account)) == {Law.ACCOUNT}


def test_a_life_beyond_its_lease_is_charged_its_lease_alone() -> None:
    whole = evidence()
    first, second, third = whole.account.attempts
    late = replace(second, closed_boot_ns=90 * SECOND_NS)
    assert (
        judge(replace(whole, account=replace(whole.account, attempts=(first, late, third)))) == []
    )


def test_a_machine_that_outlived_its_lease_is_late() -> None:
    assert laws(seeing("att_2", gone_ns=LEASE_NS + LATE_NS + 1)) == {Law.LATE_KILL}


def test_a_machine_that_was_gone_within_the_margin_is_not() -> None:
    assert judge(seeing("att_2", gone_ns=LEASE_NS + LATE_NS)) == []


def test_a_machine_that_still_lives_after_its_lease_is_late() -> None:
    assert laws(seeing("att_2", gone_ns=None, keeper_gone_ns=None)) == {Law.LATE_KILL}


def test_a_machine_that_outlived_its_keeper_is_an_orphan() -> None:
    assert laws(seeing("att_1", keeper_gone_ns=18 * SECOND_NS)) == {Law.ORPHAN}


@pytest.mark.parametrize(
    "change",
    [
        {"total_usd": 0.0016},
        {"tasks_usd": 0.0009},
    ],
)
def test_costs_of_a_report_that_do_not_add_up_are_seen(change: dict[str, float]) -> None:
    whole = evidence()
    cost = {**whole.report["cost"], **change}
    assert laws(replace(whole, report=cast(Report, {**whole.report, "cost": cost}))) == {
        Law.ACCOUNT
    }


def test_totals_that_do_not_add_up_are_seen() -> None:
    whole = evidence()
    totals = {**whole.report["totals"], "passed": 2}
    report = cast(Report, {**whole.report, "totals": totals})
    assert laws(replace(whole, report=report)) == {Law.ACCOUNT}


@pytest.mark.parametrize(
    ("index", "change"),
    [
        (0, {"exit_code": 1}),
        (0, {"seconds": 2.0}),
        (0, {"reward": None, "reward_valid": False}),
        (1, {"reward": 0.0, "reward_valid": True}),  # zero is no stand-in for unknown
        (1, {"reason": "cancelled"}),
        (2, {"failure": None}),
        (2, {"reward": 0.0, "reward_valid": True}),
    ],
)
def test_an_end_that_is_not_as_it_was_is_seen(index: int, change: dict[str, Any]) -> None:
    assert laws(with_fork(index, **change)) == {Law.OUTCOME}


def test_a_pass_of_an_endless_command_is_seen() -> None:
    changed = with_fork(1, outcome="passed", reward=1.0, reward_valid=True, exit_code=0)
    assert Law.OUTCOME in laws(changed)


def test_a_kill_for_want_of_money_that_is_called_a_fault_is_seen() -> None:
    failure = {"kind": "guest_lost", "evidence": {"seen": 1}}
    changed = with_fork(1, outcome="env_failed", reason="environment_failed", failure=failure)
    assert "killed for want of money" in " ".join(each.seen for each in judge(changed))


def test_a_lost_machine_that_is_called_capped_is_seen() -> None:
    whole = with_fork(2, outcome="capped", reason="run_exhausted", failure=None)
    assert "its keeper was killed" in " ".join(each.seen for each in judge(whole))


@pytest.mark.parametrize(
    ("killed", "kind"), [(set(), "guest_lost"), (set(), "guest_hung"), ({"att_3"}, "guest_hung")]
)
def test_a_machine_that_failed_of_no_strike_is_seen(killed: set[str], kind: str) -> None:
    changed = replace(evidence(), keepers_killed=frozenset(killed))
    failed = [{**changed.report["environment_failures"][0], "kind": kind}]
    report = cast(Report, {**changed.report, "environment_failures": failed})
    assert laws(replace(changed, report=report)) == {Law.OUTCOME}


def test_a_machine_may_fail_with_the_part_that_was_struck() -> None:
    changed = replace(evidence(), keepers_killed=frozenset())
    failed = [{**changed.report["environment_failures"][0], "kind": "worker_lost"}]
    report = cast(Report, {**changed.report, "environment_failures": failed})
    assert judge(replace(changed, report=report)) == []


def test_lateness_is_of_machines_that_were_killed_at_their_lease() -> None:
    seen = evidence().seen.values()
    assert lateness_ms(seen, LEASE_NS) == [-100.0]


def test_what_was_broken_names_the_law() -> None:
    assert str(Broken(Law.LEAK, "process 12")) == "leaks: process 12"


def evidence() -> Evidence:
    """Three forks: one passed after 20 s, one was capped at its lease, one lost its keeper."""
    lives = ((20, 5, 15), (60, 6, 54), (90, 0, 0))
    attempts = tuple(attempt(number, *life) for number, life in enumerate(lives, 1))
    account = Account(
        budget_micros=1_800,
        pool_micros=100,
        granted_micros=0,
        charged_micros=1_700,
        micros_per_hour=RATE,
        booked=(100, 0, 1_700),
        attempts=attempts,
    )
    seen = {
        "att_1": Seen("att_1", 11, 21, LEASE_NS, 20 * SECOND_NS, 20 * SECOND_NS + 1, "asked"),
        "att_2": Seen("att_2", 12, 22, LEASE_NS, LEASE_NS - SECOND_NS // 10, LEASE_NS, "deadline"),
        "att_3": Seen("att_3", 13, 23, 2 * LEASE_NS, 90 * SECOND_NS, 90 * SECOND_NS - 5, None),
    }
    return Evidence(report(), account, LIVES, seen, frozenset({"att_3"}), 3 * LEASE_NS)


def attempt(number: int, lived_s: int, verified_s: int, worked_s: int) -> Attempt:
    charged = lived_s * 10
    verification, tasks = verified_s * 10, worked_s * 10
    return Attempt(
        attempt_id=f"att_{number}",
        fork_id=f"fork_{number}",
        number=1,
        opened_boot_ns=0,
        closed_boot_ns=lived_s * SECOND_NS,
        lease_ns=LEASE_NS if number < 3 else 2 * LEASE_NS,
        charged_micros=charged,
        verification_micros=verification,
        tasks_micros=tasks,
        environment_micros=charged - verification - tasks,
    )


def report() -> Report:
    failure = {"kind": "guest_lost", "evidence": {"death_cause": "keeper_lost"}}
    forks = [
        fork(0, "passed", "command_passed", 0.0002, reward=1.0, exit_code=0, seconds=20.0),
        fork(1, "capped", "run_exhausted", 0.0006),
        fork(2, "env_failed", "environment_failed", 0.0009, failure=failure),
    ]
    outcomes = {"passed": 1, "capped": 1, "env_failed": 1}
    zero = dict.fromkeys(("failed", "timed_out", "released", "cancelled", "pending"), 0)
    made: dict[str, Any] = {
        "run_id": "run_1",
        "state": "ended",
        "final": True,
        "totals": {"requested": 3, **zero, **outcomes},
        "cost": {
            "total_usd": 0.0017,
            "spend_cap_usd": 0.0018,
            "tasks_usd": 0.00069,
            "environment_usd": 0.0009,
            "verification_usd": 0.00011,
            "rate_usd_per_fork_hour": 0.036,
        },
        "environment_failures": [
            {"fork_id": "fork_3", "index": 2, "attempt": 1, "kind": "guest_lost", "message": "lost"}
        ],
        "forks": forks,
    }
    return cast(Report, made)


def fork(index: int, outcome: str, reason: str, cost_usd: float, **more: Any) -> ForkReport:
    made: dict[str, Any] = {
        "fork_id": f"fork_{index + 1}",
        "index": index,
        "outcome": outcome,
        "reason": reason,
        "reward": None,
        "exit_code": None,
        "seconds": 0.0,
        "cost_usd": cost_usd,
        "failure": None,
        **more,
    }
    made.setdefault("reward_valid", made["reward"] is not None)
    return cast(ForkReport, made)


def laws(given: Evidence) -> set[Law]:
    return {each.law for each in judge(given)}


def planted(**change: Any) -> Evidence:
    """The same step, its account changed."""
    whole = evidence()
    return replace(whole, account=replace(whole.account, **change))


def seeing(name: str, **change: Any) -> Evidence:
    """The same step, one of its machines seen otherwise."""
    whole = evidence()
    return replace(whole, seen={**whole.seen, name: replace(whole.seen[name], **change)})


def with_fork(index: int, **change: Any) -> Evidence:
    """The same step, one fork of its report otherwise, with the totals that follow."""
    whole = evidence()
    forks = [
        {**each, **(change if each["index"] == index else {})} for each in whole.report["forks"]
    ]
    totals: dict[str, Any] = dict.fromkeys(whole.report["totals"], 0)
    for each in forks:
        totals[str(each["outcome"])] += 1
    totals["requested"] = len(forks)
    report = {**whole.report, "forks": forks, "totals": totals}
    return replace(whole, report=cast(Report, report))
