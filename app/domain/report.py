"""Forks and ledger -> what the customer reads."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.fork import VALID_OUTCOMES, Outcome, reward
from app.domain.money import NS_PER_SECOND, usd
from app.domain.run import Attempt, Fork, Run, RunState

OUTCOME_KEYS = tuple(outcome.value for outcome in Outcome)


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """An attempt with its charge in parts: final when closed, accrued so far while open (never above its lease)."""

    attempt: Attempt
    verification_micros: int
    tasks_micros: int
    environment_micros: int

    @property
    def total_micros(self) -> int:
        return self.verification_micros + self.tasks_micros + self.environment_micros


def report(
    run: Run, forks: tuple[Fork, ...], attempts: tuple[AttemptLine, ...], *, with_forks: bool
) -> dict[str, object]:
    """The report of a run at this moment; `final` once every fork has ended."""
    costs = _cost_by_fork(attempts)
    answer: dict[str, object] = {
        "run_id": run.run_id,
        "state": run.state.value,
        "final": run.state is RunState.ENDED,
        "totals": totals(forks),
        "cost": _cost(run, attempts),
        "environment_failures": [_failed(line, forks) for line in attempts if line.attempt.failure],
    }
    if with_forks:
        answer["forks"] = [fork_entry(fork, costs.get(fork.fork_id, 0)) for fork in forks]
    return answer


def totals(forks: tuple[Fork, ...]) -> dict[str, int]:
    """Counts by outcome; those of `OUTCOME_KEYS` and `pending` add up to `requested`."""
    counts = {"requested": len(forks), **dict.fromkeys(OUTCOME_KEYS, 0), "pending": 0}
    for fork in forks:
        counts[fork.outcome.value if fork.outcome else "pending"] += 1
    return counts


def fork_entry(fork: Fork, cost_micros: int) -> dict[str, object]:
    """One fork, as the report and the forks routes show it."""
    outcome, result = fork.outcome, fork.result
    value = reward(outcome, result.reward) if outcome else None
    valid = value is not None and (outcome in VALID_OUTCOMES or result.reward is not None)
    return {
        "fork_id": fork.fork_id,
        "index": fork.index,
        "key": fork.key,
        "snapshot": fork.snapshot,
        "state": fork.state.value,
        "outcome": outcome.value if outcome else None,
        "reason": fork.reason.value if fork.reason else None,
        "reward": value,
        "reward_valid": valid,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "stdout_tail": result.stdout_tail,
        "stderr_tail": result.stderr_tail,
        "truncated": result.truncated,
        "seconds": round(result.duration_ns / NS_PER_SECOND, 6),
        "cost_usd": usd(cost_micros),
        "host": fork.host_id,
        "checks": [check.as_dict() for check in fork.checks],
        "attempts": fork.attempts,
        "failure": fork.failure.as_dict() if fork.failure else None,
    }


def _cost(run: Run, attempts: tuple[AttemptLine, ...]) -> dict[str, object]:
    tasks = sum(line.tasks_micros for line in attempts)
    environment = sum(line.environment_micros for line in attempts)
    verification = sum(line.verification_micros for line in attempts)
    return {
        "total_usd": usd(tasks + environment + verification),
        "spend_cap_usd": usd(run.quote.cap_micros),
        "tasks_usd": usd(tasks),
        "environment_usd": usd(environment),
        "verification_usd": usd(verification),
        "rate_usd_per_fork_hour": usd(run.quote.rate.micros_per_hour),
    }


def _cost_by_fork(attempts: tuple[AttemptLine, ...]) -> dict[str, int]:
    costs: dict[str, int] = {}
    for line in attempts:
        fork_id = line.attempt.fork_id
        costs[fork_id] = costs.get(fork_id, 0) + line.total_micros
    return costs


def _failed(line: AttemptLine, forks: tuple[Fork, ...]) -> dict[str, object]:
    attempt = line.attempt
    index = next((fork.index for fork in forks if fork.fork_id == attempt.fork_id), None)
    shown = attempt.failure.as_dict() if attempt.failure else {}
    return {
        "fork_id": attempt.fork_id,
        "index": index,
        "attempt_id": attempt.attempt_id,
        "attempt": attempt.number,
        "host": attempt.host_id,
        "cost_usd": usd(line.total_micros),
        **shown,
    }
