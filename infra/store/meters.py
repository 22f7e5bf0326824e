"""What the billing worker reads and moves. Two of them are harmless: every move is under its run's lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select, update

from app.domain import ledger
from app.domain.account import month_of
from app.domain.event import Event, EventKind
from app.domain.failure import Failure, Phase, failure
from app.domain.fork import EndReason, ForkState
from app.domain.ledger import Need
from app.domain.money import NS_PER_SECOND
from app.domain.run import Role, Run, RunState
from app.domain.sequel import Sequel
from app.errors import EnvironmentFault, FailureKind
from infra.store import settling
from infra.store.accrual import accrued, note
from infra.store.budgets import find_project
from infra.store.each import add_each
from infra.store.ending import end_waiting
from infra.store.engine import BRIEFLY_MS, AnyRow, Database, locked, pages
from infra.store.events import tell
from infra.store.hosts import ALIVE_NS, hosts_of
from infra.store.money import Entry, book, next_sequence
from infra.store.rows import index_of, lock_forks, lock_run
from infra.store.schema import LedgerKind
from infra.store.tables import (
    attempts,
    forks,
    hosts,
    is_active,
    is_live,
    is_open,
    is_queued,
    runs,
)

# A template has its part from the beginning: what its run's pool holds is promised to the forks that verify it.
CAN_USE_MORE = (
    is_live,
    forks.c.role == Role.FORK,
    forks.c.stop_asked.is_(None),
    forks.c.kept.is_(None),
    forks.c.worst_micros > forks.c.grant_micros,
)


class Meters:
    """`app.ports.store.Meters`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def accrue(self) -> int:
        with self._database.read() as at:
            opened, figures = accrued(at, self._database.now_ns(at))
        for page in pages(figures):
            with self._database.write() as at:
                note(at, page)
        return opened

    def share(self, run_id: str) -> int:
        with self._database.write(BRIEFLY_MS) as at:
            now_ns = self._database.now_ns(at)
            run = lock_run(at, run_id)
            if run.state is RunState.ENDED or run.pool_micros == 0:
                return 0
            rate = run.quote.rate.micros_per_hour
            wanting = _lock_wanting(at, run_id, now_ns)
            needs = tuple(each.need for each in wanting)
            added = ledger.share(run.pool_micros, needs, rate, now_ns)
            moved = sum(added.values())
            if moved:
                sequence = next_sequence(at, run_id, LedgerKind.SHARE)
                entry = Entry(run_id, LedgerKind.SHARE, ledger.grant(moved), sequence)
                book(at, run, [entry], now_ns)
                _extend(at, wanting, added, rate)
            return moved

    def sharable(self) -> tuple[str, ...]:
        lacking = select(func.min(forks.c.worst_micros - forks.c.grant_micros)).where(
            forks.c.run_id == runs.c.run_id, *CAN_USE_MORE
        )
        least = lacking.scalar_subquery().label("least_lacking")
        with self._database.read() as at:
            rows = at.execute(
                select(runs.c.run_id, runs.c.pool_micros, runs.c.micros_per_hour, least)
                .where(is_active, runs.c.pool_micros > 0)
                .order_by(runs.c.created_ns, runs.c.run_id)
            )
            return tuple(row.run_id for row in rows if _worth_a_look(row))

    def expire_holds(self) -> tuple[tuple[str, str], ...]:
        with self._database.read() as at:
            late = _held_too_long(at, self._database.now_ns(at))
        return tuple(machine for page in pages(late) for machine in self._ask_to_stop(page))

    def overqueued(self) -> tuple[str, ...]:
        with self._database.read() as at:
            now_ns = self._database.now_ns(at)
            late = at.execute(
                select(runs.c.run_id)
                .join(forks, forks.c.run_id == runs.c.run_id)
                .where(is_active, is_queued, _overdue(now_ns))
                .distinct()
                .order_by(runs.c.run_id)
            )
            return tuple(late.scalars())

    def unsettled(self) -> tuple[str, ...]:
        with self._database.read() as at:
            return settling.unsettled(at)

    def settle(self, run_id: str) -> Sequel | None:
        with self._database.write(BRIEFLY_MS) as at:
            return settling.settle(at, run_id, self._database.now_ns(at))

    def expire_queued(self, run_id: str) -> Sequel | None:
        with self._database.write(BRIEFLY_MS) as at:
            now_ns = self._database.now_ns(at)
            run = lock_run(at, run_id)
            overdue = forks.c.queued_ns < now_ns - run.spec.queue_timeout_ns
            late = lock_forks(at, forks.c.run_id == run_id, is_queued, overdue)
            if not late:
                return None
            seen = _no_capacity(at, run, now_ns)
            after = end_waiting(at, run, late, EndReason.ENVIRONMENT_FAILED, now_ns, seen)
            return settling.sequel_of(at, run, after)

    def _ask_to_stop(self, late: Sequence[AnyRow]) -> list[tuple[str, str]]:
        """Those of the forks that still are as they were seen, and that nobody else writes now."""
        with self._database.write() as at:
            found = _lock_unasked(at, late)
            at.execute(
                update(forks)
                .where(forks.c.fork_id.in_([row.fork_id for row in found]))
                .values(stop_asked=EndReason.HOLD_EXPIRED)
            )
            tell(at, [_hold_expired(row) for row in found])
            claims = select(attempts.c.claim, attempts.c.attempt_id).where(
                attempts.c.attempt_id.in_([row.attempt_id for row in found])
            )
            return [(row.claim, row.attempt_id) for row in at.execute(claims)]


@dataclass(frozen=True, slots=True)
class Wanting:
    """A live fork that can use more money, with its open attempt if it has one."""

    need: Need
    worst_attempt_ns: int
    attempt_id: str | None = None
    lease_ns: int = 0


def _worth_a_look(row: AnyRow) -> bool:
    """Whether `ledger.share` could give anything: what is less than an extension stays, and costs no locks."""
    if row.least_lacking is None:
        return False
    extension = ledger.smallest_extension_micros(row.micros_per_hour)
    return bool(row.pool_micros >= min(extension, row.least_lacking))


def _lock_wanting(at: Connection, run_id: str, now_ns: int) -> list[Wanting]:
    """Forks of a run below their worst case, locked with their machines."""
    live = select(
        forks.c.fork_id, forks.c.grant_micros, forks.c.worst_micros, forks.c.worst_attempt_ns
    ).where(forks.c.run_id == run_id, *CAN_USE_MORE)
    # In a subquery, so that the hosts' rows are not locked: they come after all attempts.
    heard_ns = select(hosts.c.heartbeat_ns).where(hosts.c.host_id == attempts.c.host_id)
    machines = select(
        attempts.c.fork_id,
        attempts.c.attempt_id,
        attempts.c.opened_ns,
        attempts.c.lease_ns,
        (heard_ns.scalar_subquery() >= now_ns - ALIVE_NS).label("host_alive"),
    ).where(attempts.c.run_id == run_id, is_open)
    rows = at.execute(locked(live.order_by(forks.c.fork_id))).all()
    of_fork = {
        row.fork_id: row for row in at.execute(locked(machines.order_by(attempts.c.attempt_id)))
    }
    return [_wanting(row, of_fork.get(row.fork_id)) for row in rows]


def _wanting(row: AnyRow, machine: AnyRow | None) -> Wanting:
    figures = (row.fork_id, row.grant_micros, row.worst_micros)
    if machine is None:
        return Wanting(Need(*figures), row.worst_attempt_ns)
    ends_ns = machine.opened_ns + machine.lease_ns
    need = Need(*figures, ends_ns, host_alive=bool(machine.host_alive))
    return Wanting(need, row.worst_attempt_ns, machine.attempt_id, machine.lease_ns)


def _extend(at: Connection, wanting: list[Wanting], added: dict[str, int], rate: int) -> None:
    """Larger grants, and the leases that they fund."""
    add_each(at, forks.c.grant_micros, added)
    longer = {
        each.attempt_id: _longer_ns(each, added[each.need.fork_id], rate)
        for each in wanting
        if each.attempt_id is not None and each.need.fork_id in added
    }
    if longer:
        add_each(at, attempts.c.lease_ns, longer)


def _longer_ns(each: Wanting, part_micros: int, rate: int) -> int:
    lease_ns = ledger.lease_ns(each.need.grant_micros + part_micros, rate, each.worst_attempt_ns)
    return lease_ns - each.lease_ns


def _held_too_long(at: Connection, now_ns: int) -> Sequence[AnyRow]:
    """Forks in their callers' hands for longer than their run's hold, that nobody asked to stop."""
    handed_over = (ForkState.READY, ForkState.RUNNING)
    return at.execute(
        select(forks.c.fork_id, forks.c.attempt_id)
        .join(attempts, attempts.c.fork_id == forks.c.fork_id)
        .join(runs, runs.c.run_id == forks.c.run_id)
        .where(
            is_open,
            attempts.c.attempt_id == forks.c.attempt_id,
            runs.c.hold_ns.is_not(None),
            forks.c.state.in_(handed_over),
            forks.c.stop_asked.is_(None),
            forks.c.kept.is_(None),
            attempts.c.ready_ns + runs.c.hold_ns <= now_ns,
        )
    ).all()


def _lock_unasked(at: Connection, late: Sequence[AnyRow]) -> Sequence[AnyRow]:
    """Those of the forks that still are as they were seen, and that nobody else writes now."""
    names = (forks.c.fork_id, forks.c.attempt_id, forks.c.run_id, forks.c.index, forks.c.host_id)
    unasked = select(*names).where(
        forks.c.fork_id.in_([row.fork_id for row in late]),
        forks.c.attempt_id.in_([row.attempt_id for row in late]),
        is_live,
        forks.c.stop_asked.is_(None),
    )
    free = unasked.order_by(forks.c.fork_id).with_for_update(key_share=True, skip_locked=True)
    return at.execute(free).all()


def _hold_expired(row: AnyRow) -> Event:
    reason = EndReason.HOLD_EXPIRED
    names = (row.fork_id, index_of(row), row.attempt_id, row.host_id)
    return Event(row.run_id, EventKind.STOP_ASKED, *names, reason)


def _overdue(now_ns: int) -> Any:
    return forks.c.queued_ns < now_ns - runs.c.queue_timeout_ns


def _no_capacity(at: Connection, run: Run, now_ns: int) -> Failure:
    seen, project = hosts_of(at, now_ns), find_project(at, run.project_id, month_of(now_ns))
    who = "the project's limit had no" if project.free_forks == 0 else "no host had"
    fault = EnvironmentFault(
        FailureKind.NO_CAPACITY,
        f"{who} room within {run.spec.queue_timeout_ns // NS_PER_SECOND} s",
        project_max_forks=project.max_forks,
        project_live_forks=project.live_forks,
        hosts=[
            {
                "host": host.host_id,
                "alive": host.alive,
                "quarantine": host.quarantine.reason if host.quarantine else None,
                "slots": host.slots,
                "free_slots": host.free_slots,
                "free_memory_mib": host.free_memory_mib,
                "free_disk_gib": host.free_disk_gib,
            }
            for host in seen
        ],
    )
    return failure(fault, Phase.PLACE)
