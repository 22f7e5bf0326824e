"""What is read of one fork: its machines, its commands, its console."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Text, cast, func, select, type_coerce
from sqlalchemy.dialects.postgresql import JSONB

from app.domain.fork_page import Machine
from app.domain.run import LOOKS, Attempt, Exec, ExecResult
from infra.store.bookings import life_of
from infra.store.columns import AsJson
from infra.store.engine import AnyRow
from infra.store.rows import noun_of
from infra.store.tables import attempts, execs


def machines_of(at: Connection, fork_id: str, now_ns: int) -> tuple[Machine, ...]:
    """Each machine that a fork had, in order."""
    rows = at.execute(
        select(attempts).where(attempts.c.fork_id == fork_id).order_by(attempts.c.number)
    )
    return tuple(_machine(row, now_ns) for row in rows)


def console_of(at: Connection, fork_id: str) -> tuple[str, str] | None:
    """The attempt and the console's tail of the last machine that has ended."""
    row = at.execute(
        select(attempts.c.attempt_id, attempts.c.console)
        .where(attempts.c.fork_id == fork_id, attempts.c.closed_boot_ns.is_not(None))
        .order_by(attempts.c.number.desc())
        .limit(1)
    ).one_or_none()
    return None if row is None else (row.attempt_id, row.console or "")


def commands_of(at: Connection, fork_id: str, limit: int) -> tuple[Exec, ...]:
    """The newest commands of a fork, oldest first, without their output, which may be megabytes of each."""
    columns = [column for column in execs.c if column.name != "result"]
    newest = (
        select(*columns, _without_output(at).label("result"))
        .where(execs.c.fork_id == fork_id, execs.c.purpose.not_in(LOOKS))
        .order_by(execs.c.asked_ns.desc(), execs.c.exec_id.desc())
        .limit(limit)
    )
    return tuple(noun_of(Exec, row) for row in reversed(at.execute(newest).all()))


def _machine(row: AnyRow, now_ns: int) -> Machine:
    is_open = row.closed_boot_ns is None
    left_ns = max(0, row.opened_ns + row.lease_ns - now_ns) if is_open else None
    return Machine(noun_of(Attempt, row), life_of(row), row.ready_ns, left_ns)


def _without_output(at: Connection) -> ColumnElement[Any]:
    if at.dialect.name == "postgresql":
        # What a guest printed has no NUL in the row, which is all that JSONB would refuse.
        bare = cast(execs.c.result, JSONB).op("-")("stdout").op("-")("stderr")
        return type_coerce(cast(bare, Text), AsJson(ExecResult))
    return type_coerce(func.json_remove(execs.c.result, "$.stdout", "$.stderr"), AsJson(ExecResult))
