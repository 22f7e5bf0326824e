"""The rehearsal's judge: what it lets pass, and each thing that it must not."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from drills.rehearsal.judge import outcomes_by_host, wrong_notice, wrong_step
from drills.rows import Account, Attempt

RATE_MICROS = 36_000_000
NS = 1_000_000_000
LOST: dict[str, Any] = {"host": "i-3", "forks": {"fork_2": "running", "fork_3": "restoring"}}
Planted = Callable[[dict[str, Any]], None]


def test_a_step_in_which_all_is_right() -> None:
    assert _wrong(_report()) == []
    assert outcomes_by_host(_report()) == {  # type: ignore[arg-type]
        "i-1": {"passed": 2},
        "i-3": {"env_failed": 1},
    }


def _drop(told: dict[str, Any]) -> None:
    told["forks"].pop()


def _fail_elsewhere(told: dict[str, Any]) -> None:
    told["forks"][0]["outcome"] = "env_failed"
    told["totals"] |= {"passed": 1, "env_failed": 2}


def _score(told: dict[str, Any]) -> None:
    told["forks"][1] |= {"reward": 0.0, "reward_valid": True}


def _another_kind(told: dict[str, Any]) -> None:
    told["forks"][1]["failure"]["kind"] = "guest_lost"
    told["environment_failures"][0]["kind"] = "guest_lost"


def _run_again(told: dict[str, Any]) -> None:
    told["forks"][1] |= {"outcome": "passed", "host": "i-1", "attempts": 2, "failure": None}
    told["totals"] |= {"passed": 3, "env_failed": 0}


def _never_replaced(told: dict[str, Any]) -> None:
    told["forks"][2] |= {"outcome": "env_failed", "host": "i-3", "attempts": 1}
    told["forks"][2]["failure"] = {"kind": "host_lost", "phase": "restore", "message": ""}
    told["totals"] |= {"passed": 1, "env_failed": 2}


def _unsaid(told: dict[str, Any]) -> None:
    told["environment_failures"].pop(0)


def _wrong_output(told: dict[str, Any]) -> None:
    told["forks"][0]["stdout_tail"] = "41\n"


def _dearer(told: dict[str, Any]) -> None:
    told["cost"]["total_usd"] = 1.5


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (_drop, "are listed"),
        (_fail_elsewhere, "fork_1 lost no host, and ended env_failed"),
        (_score, "fork_2 failed by its environment, and is scored: 0.0"),
        (_another_kind, "failed by guest_lost"),
        (_run_again, "fork_2 ran a command on i-3, and ran it again on i-1"),
        (_never_replaced, "fork_3 had nothing begun on i-3, and was not replaced"),
        (_unsaid, "fork_2 lost its host, and no failure says so"),
        (_wrong_output, "saying '41\\n'"),
        (_dearer, "the run was charged"),
    ],
)
def test_what_is_wrong_is_said(plant: Planted, said: str) -> None:
    told = _report()
    plant(told)
    assert any(said in line for line in _wrong(told)), _wrong(told)


def test_a_step_that_lost_nothing_has_tried_nothing() -> None:
    (line,) = (each for each in _wrong(_report(), {**LOST, "forks": {}}) if "nothing" in each)
    assert "had no forks" in line


def test_a_cap_that_was_broken() -> None:
    assert any("under a cap" in line for line in _wrong(_report(), cap_usd=0.01))


def test_who_drains_and_who_does_not() -> None:
    leaving = {"host": "i-2", "draining": True, "gone_at": "2026-12-01T00:02:00Z"}
    staying = {"host": "i-1", "draining": False, "gone_at": None}

    def wrong(*held: dict[str, Any]) -> list[str]:
        return wrong_notice({"host": "i-2", "held": held})

    assert wrong(leaving, staying) == []
    assert len(wrong(leaving | {"gone_at": None}, staying)) == 1
    assert len(wrong(leaving, staying | {"draining": True})) == 1
    assert len(wrong(leaving)) == 1


def _wrong(told: dict[str, Any], lost: dict[str, Any] = LOST, cap_usd: float = 1.0) -> list[str]:
    return wrong_step(told, 3, lost, _account(), cap_usd)  # type: ignore[arg-type]


def _report() -> dict[str, Any]:
    """Three forks: one passed at once, one lost with its command, one that was replaced; each attempt cost a cent."""
    lost = {"kind": "host_lost", "phase": "exec", "message": "its host is gone", "host": "i-3"}
    forks = [
        _fork(1, "passed", "i-1", 1),
        _fork(2, "env_failed", "i-3", 1) | {"failure": lost, "stdout_tail": ""},
        _fork(3, "passed", "i-1", 2),
    ]
    forks[2]["cost_usd"] = 0.02
    counts = {"passed": 2, "failed": 0, "timed_out": 0, "released": 0, "env_failed": 1}
    return deepcopy(
        {
            "final": True,
            "totals": {"requested": 3, **counts, "capped": 0, "cancelled": 0, "pending": 0},
            "cost": {
                "total_usd": 0.04,
                "tasks_usd": 0.02,
                "environment_usd": 0.02,
                "verification_usd": 0.0,
            },
            "forks": forks,
            "environment_failures": [
                {**lost, "fork_id": "fork_2", "attempt": 1, "replaced": False},
                {**lost, "fork_id": "fork_3", "attempt": 1, "replaced": True},
            ],
        }
    )


def _fork(number: int, outcome: str, host: str, attempts: int) -> dict[str, Any]:
    return {
        "fork_id": f"fork_{number}",
        "outcome": outcome,
        "host": host,
        "attempts": attempts,
        "stdout_tail": "42\n",
        "reward": 1.0 if outcome == "passed" else None,
        "reward_valid": outcome == "passed",
        "failure": None,
        "cost_usd": 0.01,
    }


def _account() -> Account:
    attempts = tuple(_attempt(n, environment=n in (1, 2)) for n in range(4))
    return Account(1_000_000, 960_000, 0, 40_000, RATE_MICROS, (960_000, 0, 40_000), attempts)


def _attempt(number: int, *, environment: bool) -> Attempt:
    """One second, at a cent a second."""
    split = (0, 0, 10_000) if environment else (0, 10_000, 0)
    return Attempt(f"att_{number}", "", 1, 0, NS, 60 * NS, 10_000, *split)
