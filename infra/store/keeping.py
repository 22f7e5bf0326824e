"""Forks that are kept when their verdict is known: so many of a run at a time, decided under the run's lock."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, func, select

from app.domain.event import EventKind
from app.domain.fork import KEEPABLE, ForkState, move
from app.domain.report import kept_entry
from app.domain.run import Attempt, Claimed, Closing, Fork, Role, Run, Verdict
from infra.store.events import of_fork, tell
from infra.store.fence import held
from infra.store.rows import lock_run, save
from infra.store.tables import attempts, forks, is_live

# Its barrier was passed: something can be run in it.
REACHABLE = frozenset({ForkState.CHECKING, ForkState.READY, ForkState.RUNNING})


def keep(at: Connection, claimed: Claimed, verdict: Verdict) -> bool:
    """`Attempts.keep`, in the caller's transaction."""
    run = lock_run(at, claimed.run.run_id)
    fork, attempt = held(at, claimed)
    if fork.kept is not None:
        return True
    if not _may_keep(fork, verdict) or _kept_of(at, run) >= run.spec.keep_failed:
        return False
    new = _kept(at, fork, attempt, verdict)
    save(at, forks, "fork_id", fork, new)
    told = of_fork(EventKind.KEPT, new, reason=verdict.reason)
    tell(at, [replace(told, data=kept_entry(new) or {})])
    return True


def standing(fork: Fork, closing: Closing) -> Closing:
    """A closing with the verdict that stands: that of a fork that was kept, however its machine ended."""
    if fork.kept is None:
        return closing
    return replace(
        closing, then=fork.kept, result=fork.result, failure=fork.failure, checks=fork.checks
    )


def _may_keep(fork: Fork, verdict: Verdict) -> bool:
    wanted = fork.role is Role.FORK and fork.stop_asked is None
    return wanted and fork.state in REACHABLE and verdict.reason in KEEPABLE


def _kept_of(at: Connection, run: Run) -> int:
    """How many forks of a run are kept now."""
    kept = (forks.c.run_id == run.run_id, is_live, forks.c.kept.is_not(None))
    return int(at.execute(select(func.count()).where(*kept)).scalar_one())


def _kept(at: Connection, fork: Fork, attempt: Attempt, verdict: Verdict) -> Fork:
    """The fork in its caller's hands; its lease, which is not extended any more, says until when."""
    opened = select(attempts.c.opened_ns).where(attempts.c.attempt_id == attempt.attempt_id)
    ready = fork.state if fork.state is ForkState.READY else move(fork.state, ForkState.READY)
    return replace(
        fork,
        state=ready,
        kept=verdict.reason,
        kept_until_ns=int(at.execute(opened).scalar_one()) + attempt.lease_ns,
        result=verdict.result,
        failure=verdict.failure,
        checks=verdict.checks or fork.checks,
    )
