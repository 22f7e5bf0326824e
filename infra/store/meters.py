"""What the billing worker reads and moves. Two of them are harmless: every move is under its run's lock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, exists, select, update

from app.domain import ledger
from app.domain.failure import Failure, Phase, failure
from app.domain.fork import EndReason, ForkState
from app.domain.ledger import Need
from app.domain.money import NS_PER_SECOND
from app.domain.run import Closed, Run, RunState
from app.errors import EnvironmentFault, FailureKind
from app.ports.store import Meter
from infra.store.ending import build_of, end_waiting
from infra.store.engine import AnyRow, Database, locked
from infra.store.hosts import hosts_of
from infra.store.money import Entry, book, next_sequence
from infra.store.rows import lock_forks, lock_run
from infra.store.schema import LedgerKind
from infra.store.tables import (
    attempts,
    forks,
    is_active,
    is_live,
    is_open,
    is_queued,
    runs,
)

_ACCRUE = (
    update(attempts)
    .where(attempts.c.attempt_id == bindparam("at"), is_open)
    .values(verification_micros=bindparam("verification"), tasks_micros=bindparam("tasks"))
)
_GRANT = (
    update(forks)
    .where(forks.c.fork_id == bindparam("at"))
    .values(grant_micros=forks.c.grant_micros + bindparam("part"))
)
_LEASE = (
    update(attempts)
    .where(attempts.c.attempt_id == bindparam("at"))
    .values(lease_ns=bindparam("lease"))
)


class Meters:
    """`app.ports.store.Meters`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def accrue(self) -> int:
        with self._database.read() as at:
            now_ns = self._database.now_ns(at)
            rows = at.execute(select(attempts).where(is_open).order_by(attempts.c.attempt_id))
            accrued = [_accrued(row, now_ns) for row in rows]
        if accrued:
            # What was closed meanwhile is not open any more, and keeps its charge.
            with self._database.write() as at:
                at.execute(_ACCRUE, accrued)
        return len(accrued)

    def share(self, run_id: str) -> int:
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            run = lock_run(at, run_id)
            if run.state is RunState.ENDED or run.pool_micros == 0:
                return 0
            rate = run.quote.rate.micros_per_hour
            wanting = _lock_wanting(at, run_id)
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
        lacking = exists().where(
            forks.c.run_id == runs.c.run_id,
            is_live,
            forks.c.stop_asked.is_(None),
            forks.c.worst_micros > forks.c.grant_micros,
        )
        with self._database.read() as at:
            rows = at.execute(
                select(runs.c.run_id)
                .where(is_active, runs.c.pool_micros > 0, lacking)
                .order_by(runs.c.created_ns, runs.c.run_id)
            )
            return tuple(rows.scalars())

    def open(self) -> tuple[Meter, ...]:
        handed_over = (ForkState.READY, ForkState.RUNNING)
        with self._database.read() as at:
            now_ns = self._database.now_ns(at)
            rows = at.execute(
                select(attempts, runs.c.hold_ns)
                .join(forks, forks.c.fork_id == attempts.c.fork_id)
                .join(runs, runs.c.run_id == attempts.c.run_id)
                .where(
                    is_open,
                    runs.c.hold_ns.is_not(None),
                    forks.c.state.in_(handed_over),
                    forks.c.stop_asked.is_(None),
                )
                .order_by(attempts.c.opened_ns, attempts.c.attempt_id)
            )
            return tuple(_meter(row, now_ns) for row in rows)

    def expire_hold(self, fork_id: str) -> None:
        with self._database.write() as at:
            at.execute(
                update(forks)
                .where(
                    forks.c.fork_id == fork_id,
                    is_live,
                    forks.c.attempt_id.is_not(None),
                    forks.c.stop_asked.is_(None),
                )
                .values(stop_asked=EndReason.HOLD_EXPIRED)
            )

    def expire_queued(self) -> tuple[Closed, ...]:
        with self._database.read() as at:
            now_ns = self._database.now_ns(at)
            late = at.execute(
                select(runs.c.run_id)
                .join(forks, forks.c.run_id == runs.c.run_id)
                .where(is_active, is_queued, _overdue(now_ns))
                .distinct()
            )
            run_ids = sorted(late.scalars())
        return tuple(closed for run_id in run_ids for closed in self._expire_in(run_id))

    def _expire_in(self, run_id: str) -> tuple[Closed, ...]:
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            run = lock_run(at, run_id)
            overdue = forks.c.queued_ns < now_ns - run.spec.queue_timeout_ns
            late = lock_forks(at, forks.c.run_id == run_id, is_queued, overdue)
            if not late:
                return ()
            seen = _no_capacity(at, run, now_ns)
            run = end_waiting(at, run, late, EndReason.ENVIRONMENT_FAILED, now_ns, seen)
            done, build_id = run.state is RunState.ENDED, build_of(at, run_id)
            closed = Closed(ForkState.ENDED, False, build_id)
            return (*(closed for _ in late[1:]), replace(closed, run_ended=done))


def _accrued(row: AnyRow, now_ns: int) -> dict[str, Any]:
    """What an open attempt costs so far, by the database's clock."""
    ready_after_ns = None if row.ready_ns is None else row.ready_ns - row.opened_ns
    split = ledger.charge(
        now_ns - row.opened_ns, row.lease_ns, ready_after_ns, row.micros_per_hour, failed=False
    )
    return {
        "at": row.attempt_id,
        "verification": split.verification_micros,
        "tasks": split.tasks_micros,
    }


@dataclass(frozen=True, slots=True)
class Wanting:
    """A live fork that can use more money, with its open attempt if it has one."""

    need: Need
    worst_attempt_ns: int
    attempt_id: str | None


def _lock_wanting(at: Connection, run_id: str) -> list[Wanting]:
    """Forks of a run below their worst case, locked with their machines."""
    live = select(
        forks.c.fork_id, forks.c.grant_micros, forks.c.worst_micros, forks.c.worst_attempt_ns
    ).where(
        forks.c.run_id == run_id,
        is_live,
        forks.c.stop_asked.is_(None),
        forks.c.worst_micros > forks.c.grant_micros,
    )
    machines = select(
        attempts.c.fork_id, attempts.c.attempt_id, attempts.c.opened_ns, attempts.c.lease_ns
    ).where(attempts.c.run_id == run_id, is_open)
    rows = at.execute(locked(live.order_by(forks.c.fork_id))).all()
    of_fork = {
        row.fork_id: row for row in at.execute(locked(machines.order_by(attempts.c.attempt_id)))
    }
    return [_wanting(row, of_fork.get(row.fork_id)) for row in rows]


def _wanting(row: AnyRow, machine: AnyRow | None) -> Wanting:
    ends_ns = None if machine is None else machine.opened_ns + machine.lease_ns
    need = Need(row.fork_id, row.grant_micros, row.worst_micros, ends_ns)
    return Wanting(need, row.worst_attempt_ns, None if machine is None else machine.attempt_id)


def _extend(at: Connection, wanting: list[Wanting], added: dict[str, int], rate: int) -> None:
    """Larger grants, and the leases that they fund."""
    extended = [each for each in wanting if each.need.fork_id in added]
    grants = [{"at": each.need.fork_id, "part": added[each.need.fork_id]} for each in extended]
    at.execute(_GRANT, grants)
    leases = [
        {"at": each.attempt_id, "lease": _lease_ns(each, added, rate)}
        for each in extended
        if each.attempt_id is not None
    ]
    if leases:
        at.execute(_LEASE, leases)


def _lease_ns(each: Wanting, added: dict[str, int], rate: int) -> int:
    grant = each.need.grant_micros + added[each.need.fork_id]
    return ledger.lease_ns(grant, rate, each.worst_attempt_ns)


def _meter(row: AnyRow, now_ns: int) -> Meter:
    return Meter(
        attempt_id=row.attempt_id,
        run_id=row.run_id,
        fork_id=row.fork_id,
        host_id=row.host_id,
        age_ns=now_ns - row.opened_ns,
        ready_age_ns=None if row.ready_ns is None else now_ns - row.ready_ns,
        hold_ns=row.hold_ns,
    )


def _overdue(now_ns: int) -> Any:
    return forks.c.queued_ns < now_ns - runs.c.queue_timeout_ns


def _no_capacity(at: Connection, run: Run, now_ns: int) -> Failure:
    hosts = hosts_of(at, now_ns)
    fault = EnvironmentFault(
        FailureKind.NO_CAPACITY,
        f"no host had room within {run.spec.queue_timeout_ns // NS_PER_SECOND} s",
        hosts=[
            {
                "host": host.host_id,
                "alive": host.alive,
                "slots": host.slots,
                "free_slots": host.free_slots,
                "free_memory_mib": host.free_memory_mib,
                "free_disk_gib": host.free_disk_gib,
            }
            for host in hosts
        ],
    )
    return failure(fault, Phase.PLACE)
