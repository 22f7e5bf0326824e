"""How forks end or go back to wait, and a run with its last fork. Everything here happens under the run's lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, func, literal_column, select, update

from app.domain import ledger
from app.domain.event import Event, EventKind
from app.domain.failure import Failure
from app.domain.fork import OUTCOMES, EndReason, ForkState, move, reward
from app.domain.run import Fork, Role, Run, RunState, Stopped
from app.errors import Conflict
from infra.store.budgets import settle_budget
from infra.store.engine import pages
from infra.store.events import of_fork, of_run, tell
from infra.store.money import Entry, book
from infra.store.room import give_back
from infra.store.rows import lock_forks
from infra.store.schema import LedgerKind
from infra.store.tables import forks, is_live, runs


def ended(fork: Fork, reason: EndReason, now_ns: int) -> Fork:
    """A fork at its end: the reason decides the outcome, and its grant is its own no more."""
    return replace(
        fork,
        state=move(fork.state, ForkState.ENDED),
        reason=reason,
        outcome=OUTCOMES[reason],
        ended_ns=now_ns,
        grant_micros=0,
    )


def end_waiting(
    at: Connection,
    run: Run,
    waiting: Sequence[Fork],
    reason: EndReason,
    now_ns: int,
    failure: Failure | None = None,
) -> Run:
    """End locked, queued forks for one reason; their grants go to the pool, their room to the hosts.

    If that breaks the run's own rule, all others are stopped with them.
    """
    if not waiting:
        return run
    end_rows(at, waiting, reason, now_ns, failure)
    run, also = stop_by_rule(at, run, now_ns)
    return let_go(at, run, [*waiting, *also], now_ns)


def let_go(at: Connection, run: Run, waited: Sequence[Fork], now_ns: int) -> Run:
    """Give back what forks had that ended while they waited, and end the run if they were its last."""
    if not waited:
        return run
    give_back(at, waited)
    run = book(at, run, [returned(fork) for fork in waited], now_ns)
    return end_run_if_done(at, run, now_ns)


def stop_by_rule(at: Connection, run: Run, now_ns: int) -> tuple[Run, tuple[Fork, ...]]:
    """Stop a run whose rule is broken now: forks with a machine are asked to, those that wait end at once.

    The latter are returned as they were: their room and their grants are still to be given back.
    """
    stopped = _stopped(at, run, now_ns)
    if stopped is None:
        return run, ()
    live = lock_forks(at, forks.c.run_id == run.run_id, is_live)
    stopped = replace(stopped, forks=sum(fork.stop_asked is None for fork in live))
    run = replace(run, stopped=stopped)
    at.execute(update(runs).where(runs.c.run_id == run.run_id).values(stopped=stopped))
    tell(at, [of_run(EventKind.RUN_STOPPED, run, **_rule(stopped))])
    waiting = ask_all(at, live, EndReason.STOPPED_BY_RULE, now_ns)
    return run, waiting


def ask_all(
    at: Connection, live: Sequence[Fork], reason: EndReason, now_ns: int
) -> tuple[Fork, ...]:
    """Ask locked forks to stop that were not asked yet, and end those that wait; the latter, as they were."""
    waiting = tuple(fork for fork in live if fork.state is ForkState.QUEUED)
    end_rows(at, waiting, reason, now_ns)
    asked = [
        fork for fork in live if fork.state is not ForkState.QUEUED and fork.stop_asked is None
    ]
    for page in pages([fork.fork_id for fork in asked]):
        at.execute(update(forks).where(forks.c.fork_id.in_(page)).values(stop_asked=reason))
    tell(at, [of_fork(EventKind.STOP_ASKED, fork, reason=reason) for fork in asked])
    return waiting


def end_rows(
    at: Connection,
    waiting: Sequence[Fork],
    reason: EndReason,
    now_ns: int,
    failure: Failure | None = None,
) -> None:
    """Write and tell the end of forks that wait; their room and their grants are given back by the caller."""
    end: dict[str, Any] = {
        "state": move(ForkState.QUEUED, ForkState.ENDED),
        "reason": reason,
        "outcome": OUTCOMES[reason],
        "ended_ns": now_ns,
        "grant_micros": 0,
    }
    if failure is not None:
        end["failure"] = failure
    for page in pages([fork.fork_id for fork in waiting]):
        at.execute(update(forks).where(forks.c.fork_id.in_(page)).values(end))
    seen = {} if failure is None else {"failure": failure.as_dict()}
    tell(at, [end_of(replace(fork, reason=reason), **seen) for fork in waiting])


def end_of(fork: Fork, **seen: object) -> Event:
    """The event of a fork's end for its `reason`."""
    assert fork.reason is not None
    outcome = OUTCOMES[fork.reason]
    return of_fork(
        EventKind.FORK_ENDED,
        fork,
        reason=fork.reason,
        outcome=outcome.value,
        reward=reward(outcome, fork.result.reward),
        exit_code=fork.result.exit_code,
        **seen,
    )


def returned(fork: Fork) -> Entry:
    """What is left of a fork's grant at its end, back to the pool."""
    return Entry(fork.fork_id, LedgerKind.RETURN, ledger.give_back(fork.grant_micros))


def end_run_if_done(at: Connection, run: Run, now_ns: int) -> Run:
    """The run ends with its last fork, and its project has again what was not charged."""
    live = select(forks.c.fork_id).where(forks.c.run_id == run.run_id, is_live).limit(1)
    if at.execute(live).first() is not None:
        return run
    done = replace(run, state=RunState.ENDED, ended_ns=now_ns)
    at.execute(
        update(runs)
        .where(runs.c.run_id == run.run_id)
        .values(state=done.state, ended_ns=done.ended_ns)
    )
    settle_budget(at, done)
    tell(at, [of_run(EventKind.RUN_ENDED, done, outcomes=_outcomes(at, done))])
    return done


def over(fork: Fork) -> Conflict:
    """What a call on a fork gets that has ended, or is asked to: the failure of its environment if that is why."""
    if fork.reason is EndReason.ENVIRONMENT_FAILED and fork.failure is not None:
        return Conflict(
            "environment_failure",
            f"the machine of fork {fork.fork_id} was lost: {fork.failure.message}",
            fork_id=fork.fork_id,
            failure=fork.failure.as_dict(),
        )
    reason = fork.reason or fork.stop_asked
    return Conflict(
        "fork_ended",
        f"fork {fork.fork_id} has ended, or is about to: {reason.value if reason else 'no reason'}",
        fork_id=fork.fork_id,
        outcome=fork.outcome.value if fork.outcome else None,
        reason=reason.value if reason else None,
    )


def _stopped(at: Connection, run: Run, now_ns: int) -> Stopped | None:
    """What there is to say of a run's rule once it is broken; None before, and when that is long known."""
    rule = run.spec.stop_when
    if rule is None or run.stopped is not None:
        return None
    failed = (forks.c.run_id == run.run_id, forks.c.outcome == literal_column("'env_failed'"))
    env_failed = int(at.execute(select(func.count()).where(*failed)).scalar_one())
    if not rule.reached(env_failed, run.spec.count):
        return None
    return Stopped(rule.env_failed_share, env_failed, 0, now_ns)


def _rule(stopped: Stopped) -> dict[str, object]:
    return {
        "env_failed_share": stopped.env_failed_share,
        "env_failed": stopped.env_failed,
        "forks": stopped.forks,
    }


def _outcomes(at: Connection, run: Run) -> dict[str, int]:
    ended = (forks.c.run_id == run.run_id, forks.c.role == Role.FORK)
    counted = select(forks.c.outcome, func.count().label("forks")).where(*ended)
    return {row.outcome.value: row.forks for row in at.execute(counted.group_by(forks.c.outcome))}
