"""Rows become domain nouns, and nouns rows: the fields of a noun are the columns of the same names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, Table, insert, select, update

from app.domain.machine import Shape
from app.domain.placement import Waiting
from app.domain.run import Attempt, Claimed, Exec, Fork, Run
from app.errors import NotFound
from infra.store.engine import AnyRow, locked, pages
from infra.store.tables import attempts, execs, forks, is_open, runs

N = TypeVar("N")

_SHAPE = ("vcpus", "memory_mib", "disk_gib")

# What a placement goes by; a fork's whole row is several times as much.
NEEDS = (
    forks.c.fork_id,
    forks.c.run_id,
    forks.c.bundle_id,
    forks.c.restore_key,
    forks.c.vcpus,
    forks.c.memory_mib,
    forks.c.disk_gib,
    forks.c.avoid_hosts,
)


def noun_of(kind: type[N], row: AnyRow) -> N:
    """A row as a noun whose fields are its columns."""
    return kind(**{name: getattr(row, name) for name in _names(kind)})


def fork_of(row: AnyRow) -> Fork:
    """A fork's row; its shape is three columns."""
    plain = {name: getattr(row, name) for name in _names(Fork) if name != "shape"}
    return Fork(shape=shape_of(row), **plain)


def index_of(row: AnyRow) -> int:
    """The column `index` of a fork's row, which types take for the method of a tuple."""
    return int(getattr(row, "index"))  # noqa: B009


def shape_of(row: AnyRow) -> Shape:
    """The shape of a fork's row."""
    return Shape(row.vcpus, row.memory_mib, row.disk_gib)


def waiting_of(row: AnyRow, build_id: str | None = None, held_by: str | None = None) -> Waiting:
    """A row of `NEEDS`; `build_id` if it is that build's template, `held_by` the host that has its candidate."""
    return Waiting(
        fork_id=row.fork_id,
        run_id=row.run_id,
        bundle_id=row.bundle_id,
        restore_key=None if row.restore_key is None else str(row.restore_key),
        shape=shape_of(row),
        avoid_hosts=row.avoid_hosts,
        build_id=build_id,
        held_by=held_by,
    )


def columns_of(noun: Any) -> dict[str, Any]:
    """A noun as a row's columns, the inverse of `noun_of` and `fork_of`."""
    columns = {name: getattr(noun, name) for name in _names(type(noun))}
    shape = columns.pop("shape", None)
    if shape is not None:
        columns |= {name: getattr(shape, name) for name in _SHAPE}
    return columns


def insert_all(at: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert any number of rows."""
    if rows:
        at.execute(insert(table), rows)


def insert_forks(at: Connection, new: Sequence[Fork], now_ns: int) -> None:
    """Insert forks, which wait from now on."""
    insert_all(at, forks, [columns_of(replace(fork, queued_ns=now_ns)) for fork in new])


def save(at: Connection, table: Table, key: str, old: Any, new: Any, **more: Any) -> None:
    """Write what differs between two versions of a noun; its money by what it moved."""
    before, after = columns_of(old), columns_of(new)
    changed = {name: value for name, value in after.items() if before[name] != value}
    moved = {
        name: table.c[name] + (value - before[name])
        for name, value in changed.items()
        if name.endswith("_micros")
    }
    values = {**changed, **moved, **more}
    if values:
        at.execute(update(table).where(table.c[key] == after[key]).values(values))


def lock_run(at: Connection, run_id: str) -> Run:
    """A run, locked: whoever moves its money or ends its forks holds this. Raises NotFound(unknown_run)."""
    return _run(at, locked(select(runs).where(runs.c.run_id == run_id)), run_id)


def find_run(at: Connection, run_id: str) -> Run:
    """A run as it is now. Raises NotFound(unknown_run)."""
    return _run(at, select(runs).where(runs.c.run_id == run_id), run_id)


def lock_forks(at: Connection, *conditions: ColumnElement[bool]) -> tuple[Fork, ...]:
    """Forks, locked in the order of their ids."""
    rows = at.execute(locked(select(forks).where(*conditions).order_by(forks.c.fork_id)))
    return tuple(fork_of(row) for row in rows)


def find_attempt(at: Connection, attempt_id: str, *, lock: bool = False) -> Attempt | None:
    """An attempt as it is now, and until the transaction ends if it is locked."""
    statement = select(attempts).where(attempts.c.attempt_id == attempt_id)
    row = at.execute(locked(statement) if lock else statement).one_or_none()
    return None if row is None else noun_of(Attempt, row)


def open_of(at: Connection, run_id: str) -> tuple[Attempt, ...]:
    """The machines of a run that live now."""
    rows = at.execute(select(attempts).where(attempts.c.run_id == run_id, is_open))
    return tuple(noun_of(Attempt, row) for row in rows)


def find_exec(at: Connection, exec_id: str, *, lock: bool = False) -> Exec | None:
    """A command as it is now, and until the transaction ends if it is locked."""
    statement = select(execs).where(execs.c.exec_id == exec_id)
    row = at.execute(locked(statement) if lock else statement).one_or_none()
    return None if row is None else noun_of(Exec, row)


def claimed_of(at: Connection, held: Iterable[Attempt]) -> tuple[Claimed, ...]:
    """Attempts with their forks and runs, in the order given."""
    held = tuple(held)
    of_fork = {row.fork_id: fork_of(row) for row in _by_id(at, forks, {a.fork_id for a in held})}
    of_run = {row.run_id: noun_of(Run, row) for row in _by_id(at, runs, {a.run_id for a in held})}
    return tuple(Claimed(each, of_fork[each.fork_id], of_run[each.run_id]) for each in held)


def _run(at: Connection, statement: Select[Any], run_id: str) -> Run:
    row = at.execute(statement).one_or_none()
    if row is None:
        raise NotFound("unknown_run", f"there is no run {run_id}")
    return noun_of(Run, row)


def _by_id(at: Connection, table: Table, ids: set[str]) -> Iterable[AnyRow]:
    key = next(iter(table.primary_key.columns))
    for page in pages(sorted(ids)):
        yield from at.execute(select(table).where(key.in_(page)))


def _names(kind: Any) -> Iterable[str]:
    names: dict[str, object] = kind.__dataclass_fields__
    return names
