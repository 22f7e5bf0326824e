"""Machines' lives added up by hour: those within one hour by the database, those that pass an hour's end one by one.

A life is placed on the database's clock, and its length is the one that its host measured and that was charged: it does
not grow because an end was reported late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Subquery,
    and_,
    case,
    func,
    literal,
    or_,
    select,
)

from app.domain.cloud import ResourceKind
from app.domain.machine import Shape
from app.domain.money import NS_PER_HOUR, cost_micros
from app.domain.run import Role
from app.domain.usage import Cell, Spent, Stored, Used, Window, by_hour, gathered
from infra.store.engine import AnyRow, Database
from infra.store.tables import attempts, builds, forks, is_open, resources

# Rows on their way at once, of those that are read one by one.
BATCH = 2000


class Usage:
    """`app.ports.usage.Usage`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, window: Window, project_id: str | None, *, snapshots: bool) -> Used:
        named = _snapshot(project_id, named=snapshots)
        with self._database.read() as at:
            now_ns = self._database.now_ns(at)
            cells = gathered(_cells(at, window, named, now_ns))
            live_since_ns = at.execute(select(func.min(attempts.c.opened_ns)).where(is_open))
            kept = tuple(_stored(at, window, named=snapshots))
            return Used(now_ns, live_since_ns.scalar_one(), cells, kept)


def _snapshot(project_id: str | None, *, named: bool) -> ColumnElement[str]:
    if not named:
        return literal("")
    if project_id is None:
        return forks.c.snapshot
    return case((forks.c.project_id == project_id, forks.c.snapshot), else_="")


def _cells(
    at: Connection, window: Window, snapshot: ColumnElement[str], now_ns: int
) -> Iterator[Cell]:
    ended = _ended(window, snapshot)
    first, last = ended.c.begin_ns // NS_PER_HOUR, ended.c.end_ns // NS_PER_HOUR
    yield from _within_hours(at, ended, first, last, window)
    across = select(ended).where(first != last)
    for row in at.execute(across.execution_options(yield_per=BATCH)):
        yield from _pieces(row, _spent(row), window)
    living = _living(window, snapshot, now_ns)
    for row in at.execute(living.execution_options(yield_per=BATCH)):
        accruing = cost_micros(row.end_ns - row.begin_ns, row.micros_per_hour)
        yield from _pieces(row, _spent(row, accruing), window)


def _ended(window: Window, snapshot: ColumnElement[str]) -> Subquery:
    """Lives that have ended and may touch the window."""
    lived_ns = _least(attempts.c.closed_boot_ns - attempts.c.opened_boot_ns, attempts.c.lease_ns)
    # A database's clock may be set back, so that an end is before its beginning: such a life is a moment.
    begin_ns = _least(attempts.c.opened_ns, attempts.c.closed_ns)
    end_ns = _most(begin_ns, _least(attempts.c.closed_ns, begin_ns + lived_ns))
    return (
        select(
            *_whose(snapshot),
            attempts.c.verification_micros,
            attempts.c.tasks_micros,
            attempts.c.environment_micros,
            begin_ns.label("begin_ns"),
            end_ns.label("end_ns"),
        )
        .join_from(attempts, forks, forks.c.fork_id == attempts.c.fork_id)
        .where(attempts.c.closed_ns >= window.begin_ns, begin_ns < window.end_ns)
        .subquery()
    )


def _living(window: Window, snapshot: ColumnElement[str], now_ns: int) -> Any:
    """Machines that live, up to now: never longer than their lease, which is the most that they will be charged."""
    begin_ns = attempts.c.opened_ns
    end_ns = _most(begin_ns, _least(literal(now_ns, BigInteger), begin_ns + attempts.c.lease_ns))
    none = literal(0)
    return (
        select(
            *_whose(snapshot),
            none.label("verification_micros"),
            none.label("tasks_micros"),
            none.label("environment_micros"),
            begin_ns.label("begin_ns"),
            end_ns.label("end_ns"),
            attempts.c.micros_per_hour,
        )
        .join_from(attempts, forks, forks.c.fork_id == attempts.c.fork_id)
        .where(is_open, begin_ns < window.end_ns)
    )


def _whose(snapshot: ColumnElement[str]) -> tuple[ColumnElement[Any], ...]:
    """What tells the cells apart, and whether the machine is the first of a fork (a template is none)."""
    first = and_(attempts.c.number == 1, forks.c.role == Role.FORK)
    return (
        forks.c.project_id,
        snapshot.label("snapshot"),
        forks.c.vcpus,
        forks.c.memory_mib,
        forks.c.disk_gib,
        case((first, 1), else_=0).label("forks"),
    )


def _stored(at: Connection, window: Window, *, named: bool) -> Iterator[Stored]:
    """Volumes and snapshots that were there in the window.

    A bundle has the id of the build that made it: that one's project keeps the snapshot, that one's snapshot, deleted
    since or not, is the one that a volume holds.
    """
    kept = (
        select(resources, builds.c.project_id, builds.c.snapshot_ref, builds.c.definition)
        .join_from(resources, builds, builds.c.build_id == resources.c.bundle_id, isouter=True)
        .where(resources.c.made_ns < window.end_ns, _was_there(window.begin_ns))
    )
    for row in at.execute(kept.execution_options(yield_per=BATCH)):
        shared = row.kind is ResourceKind.VOLUME or row.project_id is None
        known = named and row.definition is not None
        yield Stored(
            row.kind,
            row.size_gib,
            row.made_ns,
            row.gone_ns,
            None if shared else row.project_id,
            (row.snapshot_ref or row.definition.name) if known else "",
        )


def _was_there(begin_ns: int) -> ColumnElement[bool]:
    return or_(resources.c.gone_ns.is_(None), resources.c.gone_ns > begin_ns)


def _within_hours(
    at: Connection,
    ended: Subquery,
    first: ColumnElement[int],
    last: ColumnElement[int],
    window: Window,
) -> Iterator[Cell]:
    """Lives that are within one hour each, added up."""
    names = ("project_id", "snapshot", "vcpus", "memory_mib", "disk_gib")
    kinds = (first, *(ended.c[name] for name in names))
    sums = ("forks", "verification_micros", "tasks_micros", "environment_micros")
    rows = at.execute(
        select(
            first.label("hour"),
            *kinds[1:],
            func.count().label("attempts"),
            func.sum(ended.c.end_ns - ended.c.begin_ns).label("lived_ns"),
            *(func.sum(ended.c[name]).label(name) for name in sums),
        )
        .where(first == last, ended.c.begin_ns >= window.begin_ns)
        .group_by(*kinds)
        .execution_options(yield_per=BATCH)
    )
    for row in rows:
        # PostgreSQL adds up 64-bit integers as decimals.
        spent = Spent(
            forks=int(row.forks),
            attempts=row.attempts,
            lived_ns=int(row.lived_ns),
            verification_micros=int(row.verification_micros),
            tasks_micros=int(row.tasks_micros),
            environment_micros=int(row.environment_micros),
        )
        yield _cell(row, row.hour * NS_PER_HOUR, spent)


def _pieces(row: AnyRow, whole: Spent, window: Window) -> Iterator[Cell]:
    for hour_ns, spent in by_hour(row.begin_ns, row.end_ns, whole):
        if window.begin_ns <= hour_ns < window.end_ns:
            yield _cell(row, hour_ns, spent)


def _spent(row: AnyRow, accruing_micros: int = 0) -> Spent:
    return Spent(
        forks=row.forks,
        attempts=1,
        lived_ns=row.end_ns - row.begin_ns,
        verification_micros=row.verification_micros,
        tasks_micros=row.tasks_micros,
        environment_micros=row.environment_micros,
        accruing_micros=accruing_micros,
    )


def _cell(row: AnyRow, hour_ns: int, spent: Spent) -> Cell:
    shape = Shape(row.vcpus, row.memory_mib, row.disk_gib)
    return Cell(hour_ns, row.project_id, shape, row.snapshot, spent)


def _least(a: ColumnElement[int], b: ColumnElement[int]) -> ColumnElement[int]:
    return case((a < b, a), else_=b)


def _most(a: ColumnElement[int], b: ColumnElement[int]) -> ColumnElement[int]:
    return case((a > b, a), else_=b)
