"""The demo's claims: a report that holds them, and each way to break one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from demo import claims
from demo.policy import expected_outcome
from promigence.types import Quote

COUNT, KILLED = 20, 7
CHECKS = dict.fromkeys(claims.CONTRACT, "fine") | {"clock": "-12.5 ms from the host's"}
LOST = {
    "kind": "guest_lost",
    "phase": "exec",
    "code": "guest_lost",
    "message": "its process is gone",
    "retryable": False,
    "task_may_have_caused": True,
    "evidence": {"signal": 9},
}


def test_a_step_as_it_should_be_has_nothing_wrong() -> None:
    assert claims.wrong_in_step(step(), quote(), KILLED) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda report: report.update(final=False), "not final", id="not-final"),
        pytest.param(
            lambda report: report["totals"].update(passed=12), "accounted for", id="miscounted"
        ),
        pytest.param(lambda report: report["forks"].pop(), "accounted for", id="a-fork-left-out"),
        pytest.param(
            lambda report: report["cost"].update(tasks_usd=0.009), "do not add up", id="parts"
        ),
        pytest.param(
            lambda report: report["cost"].update(spend_cap_usd=0.019), "within the cap", id="cap"
        ),
        pytest.param(
            lambda report: report["forks"][0].update(outcome="failed", reward=0.0),
            "should have",
            id="wrong-outcome",
        ),
        pytest.param(
            lambda report: report["forks"][0].update(reward_valid=False),
            "should have",
            id="wrong-mask",
        ),
        pytest.param(
            lambda report: report["forks"][KILLED].update(reward=0.0),
            "was killed",
            id="a-reward-for-the-killed",
        ),
        pytest.param(
            lambda report: report["forks"][KILLED].update(failure=None),
            "was killed",
            id="no-failure",
        ),
        pytest.param(
            lambda report: report["forks"][KILLED].update(failure={**LOST, "evidence": {}}),
            "was killed",
            id="no-evidence",
        ),
        pytest.param(lambda report: report["forks"][3]["checks"].pop(), "missing", id="no-probe"),
        pytest.param(
            lambda report: report["forks"][3]["checks"][0].update(sound=False),
            "unsound",
            id="unsound-probe",
        ),
        pytest.param(
            lambda report: see(report, 3, "clock", "2400.0 ms from the host's"),
            "its clock",
            id="clock",
        ),
        pytest.param(
            lambda report: see(report, 3, "entropy", f"sample {4:032x}"),
            "19 different",
            id="same-sample",
        ),
        pytest.param(
            lambda report: see(report, 3, "entropy", "nothing"), "19 different", id="no-sample"
        ),
    ],
)
def test_each_claim_can_fail(change: Callable[[Any], object], said: str) -> None:
    report = step()
    change(report)

    wrong = claims.wrong_in_step(report, quote(), KILLED)

    assert any(said in line for line in wrong), wrong


def test_a_cost_above_the_quote_is_said() -> None:
    wrong = claims.wrong_in_step(step(), quote(max_cost_usd=0.019), KILLED)

    assert any("above the quote" in line for line in wrong)


def test_a_capped_step_ends_capped_and_ungraded() -> None:
    report = capped_step()
    assert claims.wrong_in_capped_step(report, quote()) == []

    report["forks"][2].update(outcome="failed", reward=0.0, reward_valid=True)

    wrong = claims.wrong_in_capped_step(report, quote())
    assert [line for line in wrong if "[2]" in line] == wrong
    assert len(wrong) == 2


def test_a_refusal_names_its_check_and_shows_its_output() -> None:
    details = {"check": "test", "output": "python: No module named pytest"}
    assert claims.wrong_in_refusal({"code": "snapshot_refused", "details": details}) == []

    for broken in ({**details, "check": "oracle"}, {**details, "output": ""}):
        assert claims.wrong_in_refusal({"code": "snapshot_refused", "details": broken})
    assert claims.wrong_in_refusal({"code": "setup_failed", "details": details})


def step() -> Any:
    forks = [fork(index, expected_outcome(index)) for index in range(COUNT)]
    forks[KILLED].update(
        outcome="env_failed", reward=None, reward_valid=False, exit_code=None, failure=LOST
    )
    return report_of(forks)


def capped_step() -> Any:
    forks = [fork(index, "capped") for index in range(8)]
    for one in forks:
        one.update(reward=None, reward_valid=False, exit_code=None)
    return report_of(forks)


def report_of(forks: list[Any]) -> Any:
    outcomes = [one["outcome"] for one in forks]
    counts = {name: outcomes.count(name) for name in claims.OUTCOMES}
    return {
        "run_id": "run-1",
        "state": "ended",
        "final": True,
        "totals": {"requested": len(forks), **counts},
        "cost": {
            "total_usd": 0.02,
            "spend_cap_usd": 1.0,
            "tasks_usd": 0.01,
            "environment_usd": 0.004,
            "verification_usd": 0.006,
            "rate_usd_per_fork_hour": 0.05,
        },
        "environment_failures": [],
        "forks": forks,
    }


def fork(index: int, outcome: str) -> Any:
    return {
        "fork_id": f"fork-{index}",
        "index": index,
        "key": None,
        "snapshot": "task-suite@1",
        "outcome": outcome,
        "reason": None,
        "reward": claims.REWARDS.get(outcome),
        "reward_valid": True,
        "exit_code": 0 if outcome == "passed" else 1,
        "stdout_tail": "",
        "stderr_tail": "",
        "truncated": False,
        "seconds": 9.0,
        "cost_usd": 0.001,
        "host": "here",
        "checks": checks(index),
        "attempts": 1,
        "failure": None,
    }


def checks(index: int) -> list[Any]:
    said = CHECKS | {"entropy": f"sample {index:032x}, reseeded True"}
    return [
        {"name": name, "sound": True, "seen": seen, "seconds": 0.1} for name, seen in said.items()
    ]


def see(report: Any, index: int, name: str, seen: str) -> None:
    for check in report["forks"][index]["checks"]:
        if check["name"] == name:
            check["seen"] = seen


def quote(max_cost_usd: float = 1.0) -> Quote:
    return {
        "quote_id": "quote-1",
        "max_cost_usd": max_cost_usd,
        "worst_case_usd": 2.0,
        "spend_cap_usd": 1.0,
        "funded_seconds_per_fork": 3600.0,
        "rate": {"usd_per_fork_hour": 0.05, "basis": "committed", "card_version": "1"},
        "concurrency": {
            "requested": COUNT,
            "slots": COUNT,
            "free_now": COUNT,
            "binding": "request",
        },
        "limits": {
            "binding": "spend_cap",
            "project_left_usd": None,
            "project_max_forks": None,
            "project_live_forks": 0,
        },
        "accelerator": "tcg",
        "expires_at": "2026-11-30T18:00:00Z",
    }
