"""Moves of a run's money: one relative update under the run's lock, and a ledger entry for each move."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from app.domain.ledger import NOTHING, Move
from app.domain.run import Run
from infra.store.schema import LedgerKind
from infra.store.tables import ledger, runs


@dataclass(frozen=True, slots=True)
class Entry:
    """One move of money with its reason. `subject_id` is the attempt, fork or run whose move it is."""

    subject_id: str
    kind: LedgerKind
    move: Move
    sequence: int = 0


def book(at: Connection, run: Run, entries: list[Entry], now_ns: int) -> Run:
    """Move money of a locked run; the run as it is then. An entry that moves nothing is not booked.

    Raises ValueError for what the purse has not, before the database's constraints would refuse it.
    """
    moving = [entry for entry in entries if entry.move != NOTHING]
    if not moving:
        return run
    move = reduce(add, (entry.move for entry in moving))
    purse = run.purse.after(move)
    at.execute(insert(ledger), [_row(run, entry, now_ns) for entry in moving])
    at.execute(
        update(runs)
        .where(runs.c.run_id == run.run_id)
        .values(
            pool_micros=runs.c.pool_micros + move.pool_micros,
            granted_micros=runs.c.granted_micros + move.granted_micros,
            charged_micros=runs.c.charged_micros + move.charged_micros,
        )
    )
    return replace(
        run,
        pool_micros=purse.pool_micros,
        granted_micros=purse.granted_micros,
        charged_micros=purse.charged_micros,
    )


def book_budget(at: Connection, run: Run, now_ns: int) -> None:
    """What a run begins with; its row holds it already."""
    made = {"pool_micros": run.pool_micros, "granted_micros": run.granted_micros}
    at.execute(
        insert(ledger), _row(run, Entry(run.run_id, LedgerKind.BUDGET, NOTHING), now_ns) | made
    )


def next_sequence(at: Connection, subject_id: str, kind: LedgerKind) -> int:
    """The number of the next entry of its kind, under the run's lock."""
    last = at.execute(
        select(func.max(ledger.c.sequence)).where(
            ledger.c.subject_id == subject_id, ledger.c.kind == kind
        )
    ).scalar_one()
    return 0 if last is None else int(last) + 1


def _row(run: Run, entry: Entry, now_ns: int) -> dict[str, Any]:
    return {
        "subject_id": entry.subject_id,
        "kind": entry.kind,
        "sequence": entry.sequence,
        "run_id": run.run_id,
        "pool_micros": entry.move.pool_micros,
        "granted_micros": entry.move.granted_micros,
        "charged_micros": entry.move.charged_micros,
        "booked_ns": now_ns,
    }
