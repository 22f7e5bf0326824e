"""The events of a transaction, appended when all else in it is done.

Their numbers are given by a row of their run's own, locked last of all and until the commit. So numbers have no gaps,
and who has read up to one has missed nothing before it: a later number is committed later. That lock is held for two
statements, whatever the transaction did before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import count

from sqlalchemy import ColumnElement, Connection, insert, select, update

from app.domain.event import Event, bounded
from infra.store.each import add_each
from infra.store.tables import event_counts, events

# Under this name a write transaction's connection keeps the events that were told in it so far.
TOLD = "told"
PAGE = 500
COLUMNS = tuple(each.name for each in fields(Event))

Last = tuple[str, int, int]


def append(at: Connection, told: Sequence[Event], now_ns: ColumnElement[int]) -> list[Event]:
    """Write events, in their order; they are returned with their numbers and the time of `now_ns`."""
    if not told:
        return []
    counts = Counter(event.run_id for event in told)
    last = {run_id: (number, at_ns) for run_id, number, at_ns in _counted(at, counts, now_ns)}
    numbers = {run_id: count(number - counts[run_id] + 1) for run_id, (number, _) in last.items()}
    whole = [
        replace(
            event,
            number=next(numbers[event.run_id]),
            at_ns=last[event.run_id][1],
            data=bounded(event.data),
        )
        for event in told
    ]
    at.execute(
        insert(events), [{name: getattr(event, name) for name in COLUMNS} for event in whole]
    )
    return whole


def _counted(at: Connection, counts: Counter[str], now_ns: ColumnElement[int]) -> Iterator[Last]:
    """Count so many more events of each run; its last number and the time, read under the lock."""
    if len(counts) == 1:
        ((run_id, more),) = counts.items()
        counted = (
            update(event_counts)
            .where(event_counts.c.run_id == run_id)
            .values(events=event_counts.c.events + more)
            .returning(event_counts.c.events, now_ns.label("now_ns"))
        )
        row = at.execute(counted).one()
        yield run_id, row.events, row.now_ns
        return
    before = dict(_locked(at, sorted(counts)))
    add_each(at, event_counts.c.events, counts)
    at_ns = int(at.execute(select(now_ns)).scalar_one())
    for run_id, number in before.items():
        yield run_id, number + counts[run_id], at_ns


def _locked(at: Connection, run_ids: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Counts so far, locked in the order of their runs."""
    for begin in range(0, len(run_ids), PAGE):
        named = event_counts.c.run_id.in_(run_ids[begin : begin + PAGE])
        ordered = select(event_counts).where(named).order_by(event_counts.c.run_id)
        for row in at.execute(ordered.with_for_update(key_share=True)):
            yield row.run_id, row.events
