"""Forks and ledger -> what the customer reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from app.domain.fork import ForkState, Outcome, reward
from app.domain.instant import instant
from app.domain.money import NS_PER_SECOND, usd
from app.domain.run import Attempt, Fork, Run, RunState
from app.domain.snapshot import Build, BuildError

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
        "state": _state(run, forks),
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
    """One fork, as the report shows it; `outcome` is `pending` until it has ended."""
    value, valid = graded(fork)
    result = fork.result
    return {
        "fork_id": fork.fork_id,
        "index": fork.index,
        "key": fork.key,
        "snapshot": fork.snapshot,
        "outcome": fork.outcome.value if fork.outcome else "pending",
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


def graded(fork: Fork) -> tuple[float | None, bool]:
    """A fork's reward and whether a trainer may use it; null, never zero, where nothing was measured."""
    if fork.outcome is None:
        return None, False
    value = reward(fork.outcome, fork.result.reward)
    return value, value is not None


def fork_line(fork: Fork) -> dict[str, object]:
    """One fork, as the routes for held forks show it."""
    return {
        "fork_id": fork.fork_id,
        "run_id": fork.run_id,
        "index": fork.index,
        "key": fork.key,
        "snapshot": fork.snapshot,
        "state": fork.state.value,
        "outcome": fork.outcome.value if fork.outcome else None,
        "reason": fork.reason.value if fork.reason else None,
        "host": fork.host_id,
        "attempts": fork.attempts,
        "failure": fork.failure.as_dict() if fork.failure else None,
    }


def summary(
    run: Run, forks: tuple[Fork, ...], attempts: tuple[AttemptLine, ...], waiting_for: str | None
) -> dict[str, object]:
    """A run without its forks: what a progress bar needs."""
    states = Counter(fork.state for fork in forks)
    progress = {state.value: states[state] for state in ForkState if state is not ForkState.ENDED}
    return {
        "run_id": run.run_id,
        "state": _state(run, forks),
        "final": run.state is RunState.ENDED,
        "snapshots": sorted({group.snapshot for group in run.spec.groups}),
        "labels": dict(run.spec.labels),
        "created_at": instant(run.created_ns),
        "ended_at": instant(run.ended_ns) if run.ended_ns is not None else None,
        "quote": run.quote.as_dict(),
        "totals": totals(forks),
        "cost": _cost(run, attempts),
        "progress": {**progress, "waiting_for": waiting_for if progress["queued"] else None},
    }


def _state(run: Run, forks: tuple[Fork, ...]) -> str:
    if run.state is RunState.ENDED:
        return "ended"
    begun = any(fork.attempts or fork.state is not ForkState.QUEUED for fork in forks)
    return "running" if begun else "queued"


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
    fork = next((fork for fork in forks if fork.fork_id == attempt.fork_id), None)
    shown = attempt.failure.as_dict() if attempt.failure else {}
    return {
        "fork_id": attempt.fork_id,
        "index": fork.index if fork else None,
        "key": fork.key if fork else None,
        "snapshot": fork.snapshot if fork else None,
        "attempt_id": attempt.attempt_id,
        "attempt": attempt.number,
        "host": attempt.host_id,
        "cost_usd": usd(line.total_micros),
        "replaced": fork is not None and fork.attempts > attempt.number,
        **shown,
    }


def build_page(build: Build, spent_micros: int) -> dict[str, object]:
    """A build as its follower reads it."""
    error = build.error
    return {
        "build_id": build.build_id,
        "name": build.definition.name,
        "state": build.state.value,
        "step": build.step,
        "log": [{"n": line.n, "step": line.step, "text": line.text} for line in build.log],
        "snapshot": build.snapshot_ref,
        "error": None if error is None else _build_error(error),
        "cost_usd": usd(spent_micros),
        "created_at": instant(build.created_ns),
    }


def _build_error(error: BuildError) -> dict[str, object]:
    return {
        "code": error.code,
        "message": error.message,
        "retryable": False,
        "details": {"check": error.check, "output": error.output, "reproduce": error.reproduce},
    }
