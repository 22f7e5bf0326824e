"""A run's ledger, as its owner reads it: every micro-dollar has a move, and every charge a machine."""

from __future__ import annotations

from typing import Any

from app.domain.machine import DeathCause
from app.flow import report
from tests.flow.stage import PROJECT, Stage, sim, spec


def test_the_moves_add_up_to_what_the_report_says(suite: Stage) -> None:
    given = spec(count=3, exec=sim("400s", timeout_s=9000), cap_usd=0.012)
    run_id = suite.start(given)
    suite.run_for(5)
    first = suite.ports.runs.forks(run_id)[0]
    suite.world.die(first.attempt_id or "", DeathCause.SIGNAL, 9)
    suite.run_for(60)
    _adds_up(suite, run_id)
    page = suite.run_until_final(run_id)
    told = _adds_up(suite, run_id)
    assert told["granted_usd"] == 0
    assert told["charged_usd"] == page["cost"]["total_usd"]
    assert {"budget", "charge", "return", "share"} <= {move["kind"] for move in told["moves"]}
    for fork in page["forks"]:
        lives = [life for life in told["attempts"] if life["fork_id"] == fork["fork_id"]]
        assert len(lives) == fork["attempts"]
        assert round(sum(map(_cost, lives)), 6) == fork["cost_usd"]


def test_a_machine_that_lives_shows_what_it_accrued(suite: Stage) -> None:
    run_id = suite.start(spec("100s", count=1))
    suite.run_for(20)
    told: Any = report.ledger(suite.ports, PROJECT, run_id)
    (life,) = told["attempts"]
    assert (life["closed_at"], life["seconds"]) == (None, None)
    assert 0 < _cost(life) < told["granted_usd"]
    assert told["charged_usd"] == 0


def _adds_up(stage: Stage, run_id: str) -> Any:
    told: Any = report.ledger(stage.ports, PROJECT, run_id)
    run = stage.ports.runs.get(PROJECT, run_id)
    assert told["budget_usd"] == round(run.budget_micros / 1e6, 6)
    for part in ("pool_usd", "granted_usd", "charged_usd"):
        assert told[part] >= 0
        assert round(sum(move[part] for move in told["moves"]), 6) == told[part]
    assert (
        round(told["pool_usd"] + told["granted_usd"] + told["charged_usd"], 6) == told["budget_usd"]
    )
    closed = [life for life in told["attempts"] if life["closed_at"] is not None]
    assert round(sum(map(_cost, closed)), 6) == told["charged_usd"]
    return told


def _cost(life: Any) -> float:
    return float(life["verification_usd"] + life["tasks_usd"] + life["environment_usd"])
