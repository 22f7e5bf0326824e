"""What happened, told by whoever makes it happen, in the transaction that does."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, insert, select

from app.domain.event import Event, EventKind
from app.domain.run import Fork, Run, RunState
from app.errors import NotFound
from infra.store.event_log import TOLD
from infra.store.rows import noun_of
from infra.store.tables import event_counts, events, runs


def tell(at: Connection, told: Iterable[Event]) -> None:
    """Say what happens in this transaction: it is appended, in this order, at its end."""
    at.info[TOLD].extend(told)


def begin_events(at: Connection, run_id: str) -> None:
    """Let a new run have events."""
    at.execute(insert(event_counts).values(run_id=run_id, events=0))


def of_fork(
    kind: EventKind,
    fork: Fork,
    /,
    *,
    reason: str | None = None,
    **data: object,
) -> Event:
    """What happened to a fork, where it is, on the machine that it has."""
    return Event(
        run_id=fork.run_id,
        kind=kind,
        fork_id=fork.fork_id,
        index=fork.index,
        attempt_id=fork.attempt_id,
        host_id=fork.host_id,
        reason=reason,
        data=data,
    )


def of_run(kind: EventKind, run: Run, /, **data: object) -> Event:
    """What happened to a run as a whole."""
    return Event(run_id=run.run_id, kind=kind, data=data)


def events_after(
    at: Connection, project_id: str, run_id: str, after: int, limit: int
) -> tuple[tuple[Event, ...], bool]:
    """`Runs.events`, in the caller's transaction."""
    mine = (runs.c.run_id == run_id, runs.c.project_id == project_id)
    counted = select(runs.c.state, event_counts.c.events).join(
        event_counts, event_counts.c.run_id == runs.c.run_id
    )
    run = at.execute(counted.where(*mine)).one_or_none()
    if run is None:
        raise NotFound("unknown_run", f"there is no run {run_id}")
    rows = at.execute(
        select(events)
        .where(events.c.run_id == run_id, events.c.number > after)
        .order_by(events.c.number)
        .limit(limit)
    )
    found = tuple(noun_of(Event, row) for row in rows)
    last = found[-1].number if found else after
    return found, run.state is RunState.ENDED and last >= run.events
