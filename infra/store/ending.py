"""How forks end or go back to wait, and a run with its last fork. Everything here happens under the run's lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select, update

from app.domain import ledger
from app.domain.failure import Failure
from app.domain.fork import OUTCOMES, EndReason, ForkState, move
from app.domain.run import Fork, Run, RunState
from app.errors import Conflict
from infra.store.budgets import settle_budget
from infra.store.engine import pages
from infra.store.money import Entry, book
from infra.store.room import give_back
from infra.store.schema import LedgerKind
from infra.store.tables import builds, forks, is_live, runs


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
    """End locked, queued forks for one reason; their grants go to the pool, their room to the hosts."""
    if not waiting:
        return run
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
    give_back(at, waiting)
    run = book(at, run, [returned(fork) for fork in waiting], now_ns)
    return end_run_if_done(at, run, now_ns)


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


def build_of(at: Connection, run_id: str) -> str | None:
    """The build whose internal run this is."""
    found = at.execute(select(builds.c.build_id).where(builds.c.run_id == run_id)).first()
    return None if found is None else str(found.build_id)
