"""What open meters cost so far, noted on their rows for display: by the thousand, once a second, in nobody's way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import (
    BigInteger,
    Connection,
    String,
    Update,
    bindparam,
    column,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY

from app.domain import ledger
from infra.store.engine import AnyRow
from infra.store.tables import attempts, is_open

_NOTED = attempts.c.verification_micros + attempts.c.tasks_micros
_NOTE_ONE = (
    update(attempts)
    .where(
        attempts.c.attempt_id == bindparam("at"),
        is_open,
        bindparam("verification") + bindparam("tasks") > _NOTED,
    )
    .values(verification_micros=bindparam("verification"), tasks_micros=bindparam("tasks"))
)


@dataclass(frozen=True, slots=True)
class Accrued:
    """An open attempt and what it costs by now."""

    attempt_id: str
    verification_micros: int
    tasks_micros: int


def accrued(at: Connection, now_ns: int) -> tuple[int, tuple[Accrued, ...]]:
    """How many attempts are open, and those of them whose cost is more than was noted, in the order of their ids."""
    rows = at.execute(
        select(
            attempts.c.attempt_id,
            attempts.c.opened_ns,
            attempts.c.ready_ns,
            attempts.c.lease_ns,
            attempts.c.micros_per_hour,
            _NOTED.label("noted_micros"),
        )
        .where(is_open)
        .order_by(attempts.c.attempt_id)
    ).all()
    figures = ((row, _split(row, now_ns)) for row in rows)
    return len(rows), tuple(
        Accrued(row.attempt_id, split.verification_micros, split.tasks_micros)
        for row, split in figures
        if split.total_micros > row.noted_micros
    )


def note(at: Connection, figures: Sequence[Accrued]) -> None:
    """Write what is more than was noted, on attempts that are still open.

    An attempt that another transaction holds is left for the next time: this waits for nobody, so it can neither be
    part of a deadlock nor hold up the end of a machine longer than it takes itself. An older figure never replaces a
    newer one, so two at once are harmless.
    """
    if at.dialect.name == "sqlite":
        at.execute(_NOTE_ONE, [_parameters(each) for each in figures])
        return
    # Figures for display are computed anew after a crash: their commit need not wait for a disk.
    at.execute(text("SET LOCAL synchronous_commit = off"))
    at.execute(
        _note_all(),
        {
            "ids": [each.attempt_id for each in figures],
            "verifications": [each.verification_micros for each in figures],
            "tasks": [each.tasks_micros for each in figures],
        },
    )


def _split(row: AnyRow, now_ns: int) -> ledger.Split:
    """What an open attempt costs so far, by the database's clock."""
    ready_after_ns = None if row.ready_ns is None else row.ready_ns - row.opened_ns
    return ledger.charge(
        now_ns - row.opened_ns, row.lease_ns, ready_after_ns, row.micros_per_hour, failed=False
    )


def _parameters(each: Accrued) -> dict[str, object]:
    return {
        "at": each.attempt_id,
        "verification": each.verification_micros,
        "tasks": each.tasks_micros,
    }


@cache
def _note_all() -> Update:
    big, many = BigInteger(), ARRAY(BigInteger())
    figures = func.unnest(
        bindparam("ids", type_=ARRAY(String())),
        bindparam("verifications", type_=many),
        bindparam("tasks", type_=many),
    )
    named = (column("at", String()), column("verification", big), column("tasks", big))
    now = figures.table_valued(*named).render_derived("now")
    free = (
        select(now)
        .join(attempts, attempts.c.attempt_id == now.c.at)
        .where(is_open, now.c.verification + now.c.tasks > _NOTED)
        .order_by(attempts.c.attempt_id)
        .with_for_update(key_share=True, of=attempts, skip_locked=True)
        .subquery("free")
    )
    return (
        update(attempts)
        .where(attempts.c.attempt_id == free.c.at)
        .values(verification_micros=free.c.verification, tasks_micros=free.c.tasks)
    )
