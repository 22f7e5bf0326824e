"""Moves of a run's money: one relative update under the run's lock, and a ledger entry for each move."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import Connection, func, insert, select, update

from app.domain.run import Run
from infra.store.schema import LedgerKind
from infra.store.tables import ledger, runs


@dataclass(frozen=True, slots=True)
class Entry:
    """One move between pool, grants and charges. `subject_id` is the attempt, fork or run whose move it is."""

    subject_id: str
    kind: LedgerKind
    pool_micros: int = 0
    granted_micros: int = 0
    charged_micros: int = 0
    sequence: int = 0


def book(at: Connection, run: Run, entries: list[Entry], now_ns: int) -> Run:
    """Move money of a locked run; the run as it is then. An entry that moves nothing is not booked."""
    moving = [entry for entry in entries if _moves(entry)]
    if not moving:
        return run
    _insert(at, run.run_id, moving, now_ns)
    pool = sum(entry.pool_micros for entry in moving)
    granted = sum(entry.granted_micros for entry in moving)
    charged = sum(entry.charged_micros for entry in moving)
    at.execute(
        update(runs)
        .where(runs.c.run_id == run.run_id)
        .values(
            pool_micros=runs.c.pool_micros + pool,
            granted_micros=runs.c.granted_micros + granted,
            charged_micros=runs.c.charged_micros + charged,
        )
    )
    return replace(
        run,
        pool_micros=run.pool_micros + pool,
        granted_micros=run.granted_micros + granted,
        charged_micros=run.charged_micros + charged,
    )


def book_budget(at: Connection, run: Run, now_ns: int) -> None:
    """What a run begins with; its row holds it already."""
    entry = Entry(run.run_id, LedgerKind.BUDGET, run.pool_micros, run.granted_micros)
    _insert(at, run.run_id, [entry], now_ns)


def next_sequence(at: Connection, subject_id: str, kind: LedgerKind) -> int:
    """The number of the next entry of its kind, under the run's lock."""
    last = at.execute(
        select(func.max(ledger.c.sequence)).where(
            ledger.c.subject_id == subject_id, ledger.c.kind == kind
        )
    ).scalar_one()
    return 0 if last is None else int(last) + 1


def _moves(entry: Entry) -> bool:
    return any((entry.pool_micros, entry.granted_micros, entry.charged_micros))


def _insert(at: Connection, run_id: str, entries: list[Entry], now_ns: int) -> None:
    at.execute(
        insert(ledger),
        [
            {
                "subject_id": entry.subject_id,
                "kind": entry.kind,
                "sequence": entry.sequence,
                "run_id": run_id,
                "pool_micros": entry.pool_micros,
                "granted_micros": entry.granted_micros,
                "charged_micros": entry.charged_micros,
                "booked_ns": now_ns,
            }
            for entry in entries
        ],
    )
