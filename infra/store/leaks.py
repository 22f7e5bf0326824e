"""Rows that nobody works on any more, and sums that do not add up."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Text,
    and_,
    case,
    func,
    or_,
    select,
    true,
    type_coerce,
    update,
)

from app.domain import ledger
from app.domain.leak import GRACE_NS, Leak, LeakKind, is_old_enough
from app.domain.run import ExecState, RunState
from app.domain.snapshot import BuildError, BuildState
from infra.store.ending import end_run_if_done
from infra.store.engine import AnyRow, Database, locked
from infra.store.hosts import holdings, recount
from infra.store.rows import find_attempt, find_exec, lock_forks, lock_run
from infra.store.tables import (
    attempts,
    builds,
    execs,
    forks,
    hosts,
    is_active,
    is_live,
    is_open,
    is_queued,
    is_unfinished,
    is_unsettled,
    projects,
    runs,
    snapshots,
)

# Text that came from outside has its quotes escaped in a column of JSON: it names nothing.
_HASH = re.compile(r'"sha256":"([0-9a-f]{64})"')
# A version that is stored can be made anew; one that was deleted, or never came about, needs its files no more.
_NAMING = (
    (execs.c.file, true()),
    (execs.c.result, true()),
    (builds.c.definition, is_unsettled),
    (snapshots.c.definition, snapshots.c.deleted_ns.is_(None)),
)
_UNSETTLED = BuildError(
    "build_unsettled", "its run ended hours ago, and no host has settled it", check="settled"
)


class RowLeaks:
    """`app.ports.leaks.RowLeaks`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def now_ns(self) -> int:
        with self._database.read() as at:
            return self._database.now_ns(at)

    def found(self) -> tuple[Leak, ...]:
        with self._database.read() as at:
            now_ns = self._database.now_ns(at)
            return tuple(leak for look in _LOOKS for leak in look(at, now_ns))

    def mend(self, leak: Leak) -> bool:
        mend = _MENDS.get(leak.kind)
        if mend is None:
            return False
        with self._database.write() as at:
            return mend(at, leak.name, self._database.now_ns(at))

    def blobs_named(self) -> frozenset[str]:
        with self._database.read() as at:
            return frozenset(sha256 for naming in _NAMING for sha256 in _named(at, *naming))


def _named(at: Connection, column: Column[str], which: ColumnElement[bool]) -> Iterator[str]:
    text = type_coerce(column, Text)
    for row in at.execute(select(text.label("text")).where(which, text.like('%"sha256":"%'))):
        yield from _HASH.findall(row.text)


def _overdue_attempts(at: Connection, now_ns: int) -> Iterator[Leak]:
    """The billing worker closes them once a second: what is older shows that it does not."""
    for row in at.execute(select(attempts).where(is_open)):
        age_ns = now_ns - row.opened_ns - GRACE_NS[LeakKind.OVERDUE_ATTEMPT]
        if ledger.may_close_by_time(age_ns, row.lease_ns):
            detail = f"of {row.fork_id} on {row.host_id}"
            lived_ns = now_ns - row.opened_ns
            yield Leak(LeakKind.OVERDUE_ATTEMPT, row.attempt_id, detail, lived_ns)


def _forks_without_machine(at: Connection, _now_ns: int) -> Iterator[Leak]:
    opened = select(attempts.c.attempt_id).where(attempts.c.fork_id == forks.c.fork_id, is_open)
    lone = select(forks.c.fork_id, forks.c.state, forks.c.run_id)
    for row in at.execute(lone.where(is_live, ~is_queued, ~opened.exists())):
        detail = f"of {row.run_id}, {row.state.value}"
        yield Leak(LeakKind.FORK_WITHOUT_MACHINE, row.fork_id, detail)


def _runs_without_forks(at: Connection, now_ns: int) -> Iterator[Leak]:
    live = select(forks.c.fork_id).where(forks.c.run_id == runs.c.run_id, is_live)
    lone = select(runs.c.run_id, runs.c.created_ns).where(is_active, ~live.exists())
    for row in at.execute(lone):
        age_ns = now_ns - row.created_ns
        yield Leak(LeakKind.RUN_WITHOUT_FORKS, row.run_id, age_ns=age_ns)


def _execs_of_closed(at: Connection, now_ns: int) -> Iterator[Leak]:
    unfinished = (
        select(execs.c.exec_id, execs.c.attempt_id, execs.c.asked_ns)
        .join(attempts, attempts.c.attempt_id == execs.c.attempt_id)
        .where(is_unfinished, ~is_open)
    )
    for row in at.execute(unfinished):
        detail, age_ns = f"of {row.attempt_id}", now_ns - row.asked_ns
        yield Leak(LeakKind.EXEC_OF_CLOSED_ATTEMPT, row.exec_id, detail, age_ns)


def _unsettled_builds(at: Connection, now_ns: int) -> Iterator[Leak]:
    ended = (
        select(builds.c.build_id, runs.c.ended_ns)
        .join(runs, runs.c.run_id == builds.c.run_id)
        .where(is_unsettled, runs.c.state == RunState.ENDED)
        .order_by(builds.c.created_ns)
    )
    for row in at.execute(ended):
        age_ns = now_ns - row.ended_ns
        if is_old_enough(LeakKind.UNSETTLED_BUILD, age_ns):
            yield Leak(LeakKind.UNSETTLED_BUILD, row.build_id, age_ns=age_ns)


def _host_room(at: Connection, _now_ns: int) -> Iterator[Leak]:
    """One statement, so that it is of one instant: whoever places or ends a fork moves both sides at once."""
    each = holdings()
    held = (
        select(
            each.c.host_id,
            func.sum(each.c.memory_mib).label("memory_mib"),
            func.sum(each.c.disk_gib).label("disk_gib"),
            func.count().label("slots"),
        )
        .group_by(each.c.host_id)
        .subquery()
    )
    columns = ("memory_mib", "disk_gib", "slots")
    left = {name: _left(hosts.c[name], held.c[name]) for name in columns}
    differs = or_(*(hosts.c[f"free_{name}"] != left[name] for name in columns))
    seen = select(hosts, *(left[name].label(f"left_{name}") for name in columns))
    for row in at.execute(seen.outerjoin(held, held.c.host_id == hosts.c.host_id).where(differs)):
        yield Leak(LeakKind.HOST_ROOM, row.host_id, _room_of(row))


def _left(there_is: ColumnElement[int], held: ColumnElement[Any]) -> ColumnElement[int]:
    # A host that came back smaller than what is held on it has nothing left, not less.
    left = there_is - func.coalesce(held, 0)
    return case((left < 0, 0), else_=left)


def _room_of(row: AnyRow) -> str:
    return (
        f"free {row.free_slots} slots, {row.free_memory_mib} MiB, {row.free_disk_gib} GiB; by its "
        f"forks {row.left_slots}, {row.left_memory_mib}, {row.left_disk_gib}"
    )


def _project_forks(at: Connection, _now_ns: int) -> Iterator[Leak]:
    placed = (
        select(func.count())
        .where(forks.c.project_id == projects.c.project_id, forks.c.host_id.is_not(None), is_live)
        .scalar_subquery()
    )
    seen = select(projects.c.project_id, projects.c.live_forks, placed.label("placed"))
    for row in at.execute(seen.where(projects.c.live_forks != placed)):
        detail = f"{row.live_forks} counted, {row.placed} placed"
        yield Leak(LeakKind.PROJECT_FORKS, row.project_id, detail)


def _end_run(at: Connection, run_id: str, now_ns: int) -> bool:
    run = lock_run(at, run_id)
    if run.state is RunState.ENDED:
        return False
    return end_run_if_done(at, run, now_ns).state is RunState.ENDED


def _lose_exec(at: Connection, exec_id: str, _now_ns: int) -> bool:
    """Under the locks of its machine, which are what a command is written under."""
    seen = find_exec(at, exec_id)
    if seen is None:
        return False
    lock_forks(at, forks.c.fork_id == seen.fork_id)
    attempt = find_attempt(at, seen.attempt_id, lock=True)
    if attempt is None or attempt.closed_boot_ns is None:
        return False
    unfinished = and_(execs.c.exec_id == exec_id, is_unfinished)
    lost = update(execs).where(unfinished).values(state=ExecState.LOST, failure=attempt.failure)
    return at.execute(lost).rowcount == 1


def _refuse_build(at: Connection, build_id: str, _now_ns: int) -> bool:
    refused = update(builds).where(builds.c.build_id == build_id, is_unsettled)
    return at.execute(refused.values(state=BuildState.FAILED, error=_UNSETTLED)).rowcount == 1


def _recount_host(at: Connection, host_id: str, _now_ns: int) -> bool:
    return recount(at, host_id)


def _recount_project(at: Connection, project_id: str, _now_ns: int) -> bool:
    """Whoever places or ends a fork waits for the project's row, so that what is counted under its lock holds."""
    at.execute(locked(select(projects.c.project_id).where(projects.c.project_id == project_id)))
    placed = select(func.count()).where(
        forks.c.project_id == project_id, forks.c.host_id.is_not(None), is_live
    )
    counted = int(at.execute(placed).scalar_one())
    wrong = and_(projects.c.project_id == project_id, projects.c.live_forks != counted)
    return at.execute(update(projects).where(wrong).values(live_forks=counted)).rowcount == 1


Look = Callable[[Connection, int], Iterator[Leak]]
Mend = Callable[[Connection, str, int], bool]

_LOOKS: tuple[Look, ...] = (
    _overdue_attempts,
    _forks_without_machine,
    _runs_without_forks,
    _execs_of_closed,
    _unsettled_builds,
    _host_room,
    _project_forks,
)

_MENDS: dict[LeakKind, Mend] = {
    LeakKind.RUN_WITHOUT_FORKS: _end_run,
    LeakKind.EXEC_OF_CLOSED_ATTEMPT: _lose_exec,
    LeakKind.UNSETTLED_BUILD: _refuse_build,
    LeakKind.HOST_ROOM: _recount_host,
    LeakKind.PROJECT_FORKS: _recount_project,
}
