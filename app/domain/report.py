"""Forks and ledger -> what the customer reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.domain.fork import OUTCOMES, ForkState, Outcome, reward
from app.domain.instant import instant
from app.domain.money import NS_PER_SECOND, usd
from app.domain.placement import Waiting
from app.domain.run import Attempt, Fork, Run, RunState
from app.domain.snapshot import Build, BuildError

# Hosts that drain, each with when the cloud takes it back (the database's clock), None where it does not.
Leaving = Mapping[str, int | None]


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


@dataclass(frozen=True, slots=True)
class Tally:
    """A run's forks and charges, counted: all that is said of a run without naming its forks."""

    states: Mapping[ForkState, int] = field(default_factory=dict)
    outcomes: Mapping[Outcome, int] = field(default_factory=dict)
    attempts: int = 0
    verification_micros: int = 0
    tasks_micros: int = 0
    environment_micros: int = 0
    kept: int = 0
    unplaced: int = 0
    first_unplaced: Waiting | None = None

    @property
    def total_micros(self) -> int:
        return self.verification_micros + self.tasks_micros + self.environment_micros


def tally(forks: tuple[Fork, ...], attempts: tuple[AttemptLine, ...]) -> Tally:
    """Count a run's forks (by index) and attempts; the store counts the same without reading them one by one."""
    unplaced = [fork for fork in forks if fork.state is ForkState.QUEUED and fork.host_id is None]
    return Tally(
        states=Counter(fork.state for fork in forks),
        outcomes=Counter(fork.outcome for fork in forks if fork.outcome is not None),
        attempts=len(attempts),
        verification_micros=sum(line.verification_micros for line in attempts),
        tasks_micros=sum(line.tasks_micros for line in attempts),
        environment_micros=sum(line.environment_micros for line in attempts),
        kept=sum(_is_kept(fork) for fork in forks),
        unplaced=len(unplaced),
        first_unplaced=_waiting(unplaced[0]) if unplaced else None,
    )


def report(
    run: Run,
    forks: tuple[Fork, ...],
    attempts: tuple[AttemptLine, ...],
    leaving: Leaving,
    *,
    with_forks: bool,
) -> dict[str, object]:
    """The report of a run at this moment; `final` once every fork has ended."""
    counted = tally(forks, attempts)
    costs = _cost_by_fork(attempts)
    answer: dict[str, object] = {
        "run_id": run.run_id,
        "state": _state(run, counted),
        "final": run.state is RunState.ENDED,
        "totals": totals(counted),
        "cost": _cost(run, counted),
        "stopped": stopped_entry(run),
        "environment_failures": [_failed(line, forks) for line in attempts if line.attempt.failure],
    }
    if with_forks:
        answer["forks"] = [
            fork_entry(fork, costs.get(fork.fork_id, 0)) | leaving_entry(fork, leaving)
            for fork in forks
        ]
    return answer


def totals(counted: Tally) -> dict[str, int]:
    """Counts by outcome; the outcomes and `pending` add up to `requested`."""
    ended = {outcome.value: counted.outcomes.get(outcome, 0) for outcome in Outcome}
    requested = sum(counted.states.values())
    return {"requested": requested, **ended, "pending": requested - sum(ended.values())}


def stopped_entry(run: Run) -> dict[str, object] | None:
    """That the run's own rule stopped it, with what broke the rule; None if it did not."""
    if run.stopped is None:
        return None
    return {
        "stop_when": {"env_failed_share": run.stopped.env_failed_share},
        "env_failed": run.stopped.env_failed,
        "forks": run.stopped.forks,
        "at": instant(run.stopped.at_ns),
    }


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
        "grade": result.grade.as_dict() if result.grade else None,
        "failure": fork.failure.as_dict() if fork.failure else None,
        "kept": kept_entry(fork),
    }


def kept_entry(fork: Fork) -> dict[str, object] | None:
    """What a fork that is kept will end for, and when its machine's lease ends; null for every other."""
    if not _is_kept(fork):
        return None
    assert fork.kept is not None
    assert fork.kept_until_ns is not None
    return {
        "outcome": OUTCOMES[fork.kept].value,
        "reason": fork.kept.value,
        "until": instant(fork.kept_until_ns),
    }


def leaving_entry(fork: Fork, leaving: Leaving) -> dict[str, object]:
    """Whether the host of a fork that has not ended drains, and when the cloud takes it back, if it does."""
    there = fork.outcome is None and fork.host_id in leaving
    gone_at_ns = leaving.get(fork.host_id or "") if there else None
    return {
        "draining": there,
        "gone_at": None if gone_at_ns is None else instant(gone_at_ns),
    }


def graded(fork: Fork) -> tuple[float | None, bool]:
    """A fork's reward and whether a trainer may use it; null, never zero, where nothing was measured."""
    if fork.outcome is None:
        return None, False
    value = reward(fork.outcome, fork.result.reward)
    return value, value is not None


def fork_line(fork: Fork, leaving: Leaving) -> dict[str, object]:
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
        "kept": kept_entry(fork),
        **leaving_entry(fork, leaving),
    }


def summary(run: Run, counted: Tally, waiting_for: str | None) -> dict[str, object]:
    """A run without its forks: what a progress bar needs."""
    live = [state for state in ForkState if state is not ForkState.ENDED]
    progress = {state.value: counted.states.get(state, 0) for state in live}
    return {
        "run_id": run.run_id,
        "state": _state(run, counted),
        "final": run.state is RunState.ENDED,
        "snapshots": sorted({group.snapshot for group in run.spec.groups}),
        "labels": dict(run.spec.labels),
        "created_at": instant(run.created_ns),
        "ended_at": instant(run.ended_ns) if run.ended_ns is not None else None,
        "quote": run.quote.as_dict(),
        "totals": totals(counted),
        "cost": _cost(run, counted),
        "stopped": stopped_entry(run),
        "progress": {
            **progress,
            "kept": counted.kept,
            "waiting_for": waiting_for if progress["queued"] else None,
        },
    }


def _is_kept(fork: Fork) -> bool:
    return fork.kept is not None and fork.outcome is None


def _waiting(fork: Fork) -> Waiting:
    """What a queued fork needs of a host."""
    return Waiting(
        fork_id=fork.fork_id,
        run_id=fork.run_id,
        bundle_id=fork.bundle_id,
        restore_key=None if fork.restore_key is None else str(fork.restore_key),
        shape=fork.shape,
        avoid_hosts=fork.avoid_hosts,
    )


def _state(run: Run, counted: Tally) -> str:
    if run.state is RunState.ENDED:
        return "ended"
    waits = sum(counted.states.values()) == counted.states.get(ForkState.QUEUED, 0)
    return "queued" if waits and not counted.attempts else "running"


def _cost(run: Run, counted: Tally) -> dict[str, object]:
    return {
        "total_usd": usd(counted.total_micros),
        "spend_cap_usd": usd(run.quote.cap_micros),
        "tasks_usd": usd(counted.tasks_micros),
        "environment_usd": usd(counted.environment_micros),
        "verification_usd": usd(counted.verification_micros),
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
        "rebuilds": None if build.origin is None else build.origin.ref,
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
