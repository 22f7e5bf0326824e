"""What happened, told by whoever makes it happen, in the transaction that does, under the run's lock.

So the numbers of a run have no gaps, and who has read up to one has missed nothing before it: a later number is
committed later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

from sqlalchemy import Connection, select, update

from app.domain.event import Event, EventKind, bounded
from app.domain.run import Fork, Run, RunState
from app.errors import NotFound
from infra.store.each import add_each
from infra.store.engine import TOLD, pages
from infra.store.rows import columns_of, insert_all, noun_of
from infra.store.tables import events, runs


def tell(at: Connection, now_ns: int, told: Sequence[Event]) -> None:
    """Append events in their order. The caller holds the locks of their runs."""
    if not told:
        return
    counts = Counter(event.run_id for event in told)
    numbers = {run_id: count(first) for run_id, first in _first_numbers(at, counts).items()}
    rows = [
        replace(event, number=next(numbers[event.run_id]), at_ns=now_ns, data=bounded(event.data))
        for event in told
    ]
    insert_all(at, events, [columns_of(row) for row in rows])
    at.info.setdefault(TOLD, []).extend(rows)


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
    run = at.execute(select(runs.c.state, runs.c.events).where(*mine)).one_or_none()
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


def _first_numbers(at: Connection, counts: Counter[str]) -> dict[str, int]:
    """The first of so many new numbers of each run."""
    if len(counts) == 1:
        ((run_id, new),) = counts.items()
        counted = update(runs).where(runs.c.run_id == run_id).values(events=runs.c.events + new)
        last = at.execute(counted.returning(runs.c.events)).scalar_one()
        return {run_id: last - new + 1}
    add_each(at, runs.c.events, counts)
    return {run_id: last - counts[run_id] + 1 for run_id, last in _last_numbers(at, counts)}


def _last_numbers(at: Connection, run_ids: Iterable[str]) -> Iterable[tuple[str, int]]:
    for page in pages(sorted(run_ids)):
        last = select(runs.c.run_id, runs.c.events).where(runs.c.run_id.in_(page))
        yield from ((row.run_id, row.events) for row in at.execute(last))
