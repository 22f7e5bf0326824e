"""Hosts: their fitness and their room. Which forks are placed on them is in `placing.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Subquery,
    func,
    or_,
    select,
    union_all,
    update,
)

from app.domain.disk import DiskRoom
from app.domain.explanation import Case
from app.domain.machine import Fingerprint, Shape
from app.domain.money import NS_PER_HOUR, NS_PER_SECOND
from app.domain.placement import Host, Placement, Waiting
from app.domain.quarantine import Quarantine
from app.domain.spot import Notice
from app.errors import NotFound, PromigenceError, Unavailable
from infra.store import notices, placing, quarantine, trials
from infra.store.cases import case_of
from infra.store.deployments import deployment_of, remembers_more
from infra.store.engine import AnyRow, Database, insert_new, locked
from infra.store.readable import readable
from infra.store.rows import lock_forks
from infra.store.tables import forks, hosts, is_live, is_queued
from infra.store.tables import trials as trial_rows
from infra.store.workers import is_leaving

ALIVE_NS = 15 * NS_PER_SECOND
LISTED_NS = 24 * NS_PER_HOUR

log = structlog.get_logger(__name__)


class Hosts:
    """`app.ports.hosts.Hosts`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(
        self, fingerprint: Fingerprint, slots: int, *, zone: str | None = None, fetches: bool = True
    ) -> None:
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            whole = _whole(fingerprint, slots)
            whole |= {"heartbeat_ns": now_ns, "zone": zone, "fetches": fetches}
            new = whole | {
                "host_id": fingerprint.host_id,
                "mounted": (),
                "unmountable": (),
                "holds": (),
                "strikes": quarantine.NO_STRIKES,
                "self_tests": 0,
            }
            if not insert_new(at, hosts, new):
                _register_again(at, fingerprint, whole)

    def heartbeat(
        self,
        host_id: str,
        mounted: tuple[str, ...],
        holds: tuple[str, ...] = (),
        *,
        disk: DiskRoom | None = None,
        unmountable: tuple[tuple[str, str], ...] = (),
    ) -> None:
        seen = {"mounted": mounted, "holds": holds, "unmountable": unmountable, **_seen_of(disk)}
        with self._database.write() as at:
            beaten = at.execute(
                update(hosts)
                .where(hosts.c.host_id == host_id)
                .values(heartbeat_ns=self._database.now_ns(at), **seen)
            )
        if beaten.rowcount == 0:
            raise NotFound("unknown_host", f"host {host_id} has not been registered")

    def list(self) -> tuple[Host, ...]:
        with self._database.read() as at:
            return hosts_of(at, self._database.now_ns(at))

    def leaving(self) -> Mapping[str, int | None]:
        with self._database.read() as at:
            now_ns = self._database.now_ns(at)
            to_go = or_(
                hosts.c.gone_ns.is_not(None), hosts.c.retired_ns.is_not(None), is_leaving(now_ns)
            )
            rows = at.execute(
                select(hosts.c.host_id, hosts.c.gone_ns).where(_is_listed(now_ns), to_go)
            )
            return {row.host_id: row.gone_ns for row in rows}

    def waiting(self, limit: int) -> tuple[Waiting, ...]:
        with self._database.read() as at:
            return placing.waiting(at, limit)

    def case(self, fork_id: str) -> Case:
        with self._database.read() as at:
            return case_of(at, fork_id, self._database.now_ns(at))

    def assign(self, placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
        with self._database.write() as at:
            return placing.assign(at, placements)

    def unassign_dead(self) -> int:
        with self._database.read() as at:
            now_ns = self._database.now_ns(at)
            leaving = list(at.execute(_left(now_ns)).scalars())
            old = trials.old(at, now_ns)
        moved = sum(self._each(host_id, self._unassign) for host_id in leaving)
        # Hosts are locked in the order of their ids, so those of trials in a transaction of their own.
        for name in old:
            self._each(name, self._let_go)
        return moved

    def _unassign(self, host_id: str) -> int:
        with self._database.write() as at:
            here = _left(self._database.now_ns(at)).where(hosts.c.host_id == host_id)
            leaving = lock_forks(at, is_queued, forks.c.host_id.in_(here))
            placing.unassign(at, leaving)
        return len(leaving)

    def _let_go(self, name: str) -> int:
        self.let_go(name)
        return 1

    def _each(self, name: str, act: Callable[[str], int]) -> int:
        """What it comes to for one host; nothing if it cannot be done.

        A host may have written what cannot be read or added to. It was a transaction of its own: nothing is half done,
        and those of other hosts are done all the same.
        """
        try:
            return act(name)
        except Unavailable:
            raise
        except (PromigenceError, ValueError) as wrong:
            log.warning("not_unassigned", name=name, why=type(wrong).__name__)
            return 0

    def give_notice(self, host_id: str, told: Notice) -> bool:
        with self._database.write() as at:
            return notices.give(at, host_id, told, self._database.now_ns(at))

    def withdraw_notice(self, host_id: str) -> bool:
        with self._database.write() as at:
            return notices.withdraw(at, host_id)

    def retire(self, host_id: str) -> bool:
        with self._database.write() as at:
            return notices.retire(at, host_id, self._database.now_ns(at))

    def quarantine(self, host_id: str, reason: str) -> None:
        with self._database.write() as at:
            quarantine.shut(at, host_id, reason, self._database.now_ns(at))

    def release(self, host_id: str) -> bool:
        with self._database.write() as at:
            return quarantine.lift(at, host_id)

    def begin_test(self, host_id: str) -> Quarantine | None:
        with self._database.write() as at:
            return quarantine.begin_test(at, host_id, self._database.now_ns(at))

    def end_test(self, host_id: str, begun: Quarantine, seen: str, *, passed: bool) -> bool:
        with self._database.write() as at:
            return quarantine.end_test(at, host_id, begun, seen, passed=passed)

    def hold(self, host_id: str, name: str, shape: Shape, within_ns: int) -> bool:
        with self._database.write() as at:
            until_ns = self._database.now_ns(at) + within_ns
            return trials.hold(at, host_id, name, shape, until_ns)

    def let_go(self, name: str) -> None:
        with self._database.write() as at:
            trials.let_go(at, name)

    def placed(self) -> tuple[tuple[str, str, int], ...]:
        with self._database.read() as at:
            return placing.placed(at)


def recount(at: Connection, host_id: str) -> bool:
    """Set a host's free room to what its forks leave of it; False if it was so already.

    Whoever moves room waits for the host's lock, taken here, with the fork's new state not committed yet: what is
    counted under it holds.
    """
    there_is = at.execute(locked(select(hosts).where(hosts.c.host_id == host_id))).one()
    memory, disk, placed = _reserved(at, host_id)
    free = {
        "free_memory_mib": max(0, there_is.memory_mib - memory),
        "free_disk_gib": max(0, there_is.disk_gib - disk),
        "free_slots": max(0, there_is.slots - placed),
    }
    if all(getattr(there_is, name) == value for name, value in free.items()):
        return False
    at.execute(update(hosts).where(hosts.c.host_id == host_id).values(free))
    return True


def holdings() -> Subquery:
    """Whatever holds room of a host: a row for each fork that has its place there, and for each trial."""
    columns = ("host_id", "memory_mib", "disk_gib")
    of_forks = select(*(forks.c[name] for name in columns)).where(
        forks.c.host_id.is_not(None), is_live
    )
    of_trials = select(*(trial_rows.c[name] for name in columns))
    return union_all(of_forks, of_trials).subquery()


def hosts_of(at: Connection, now_ns: int) -> tuple[Host, ...]:
    """All hosts heard of in the last day, by id."""
    more = remembers_more(deployment_of(at))
    rows = (
        select(hosts, is_leaving(now_ns).label("draining"), more.label("is_ahead"))
        .where(_is_listed(now_ns))
        .order_by(hosts.c.host_id)
    )
    return readable(at, rows, hosts.c.host_id, lambda row: _host(row, now_ns))


def _left(now_ns: int) -> Select[Any]:
    """Hosts from which those that wait there go elsewhere."""
    broken = (hosts.c.quarantine.is_not(None), hosts.c.disk_nearly_full)
    out = (*broken, hosts.c.gone_ns.is_not(None), hosts.c.retired_ns.is_not(None))
    alive = hosts.c.heartbeat_ns.between(now_ns - ALIVE_NS, now_ns + ALIVE_NS)
    waits = select(forks.c.fork_id).where(is_queued, forks.c.host_id == hosts.c.host_id)
    shut = or_(~alive, *out, is_leaving(now_ns))
    return select(hosts.c.host_id).where(waits.exists(), shut).order_by(hosts.c.host_id)


def _is_listed(now_ns: int) -> ColumnElement[bool]:
    return hosts.c.heartbeat_ns > now_ns - LISTED_NS


def _host(row: AnyRow, now_ns: int) -> Host:
    return Host(
        host_id=row.host_id,
        fingerprint=row.fingerprint,
        free_memory_mib=row.free_memory_mib,
        free_disk_gib=row.free_disk_gib,
        slots=row.slots,
        free_slots=row.free_slots,
        mounted=row.mounted,
        # Heartbeats are written by the database's clock: none is of a time to come but a lie, to outlive its host.
        alive=abs(now_ns - row.heartbeat_ns) <= ALIVE_NS,
        draining=row.draining,
        heartbeat_age_ns=abs(now_ns - row.heartbeat_ns),
        quarantine=row.quarantine,
        zone=row.zone,
        fetches=row.fetches,
        holds=row.holds,
        gone_at_ns=row.gone_ns,
        retiring=row.retired_ns is not None,
        ahead=(row.ahead_epoch, row.ahead_beat) if row.is_ahead else None,
        disk_free_bytes=row.disk_free_bytes,
        disk_nearly_full=row.disk_nearly_full,
        unmountable=row.unmountable,
    )


def _register_again(at: Connection, fingerprint: Fingerprint, whole: dict[str, Any]) -> None:
    """What an earlier boot of it was told of its end is over, and so is its retirement: it came back."""
    here = hosts.c.host_id == fingerprint.host_id
    before = at.execute(locked(select(hosts.c.fingerprint).where(here))).one()
    if before.fingerprint.boot_id != fingerprint.boot_id:
        whole = whole | {"gone_ns": None, "retired_ns": None}
    at.execute(update(hosts).where(here).values(whole))
    recount(at, fingerprint.host_id)


def _seen_of(disk: DiskRoom | None) -> dict[str, Any]:
    if disk is None:
        return {}
    free = {"disk_free_bytes": disk.free_bytes}
    return free if disk.nearly_full is None else {**free, "disk_nearly_full": disk.nearly_full}


def _whole(fingerprint: Fingerprint, slots: int) -> dict[str, Any]:
    """A host with nothing on it."""
    memory, disk = fingerprint.memory_mib, fingerprint.disk_gib
    return {
        "fingerprint": fingerprint,
        "memory_mib": memory,
        "disk_gib": disk,
        "slots": slots,
        "free_memory_mib": memory,
        "free_disk_gib": disk,
        "free_slots": slots,
    }


def _reserved(at: Connection, host_id: str) -> tuple[int, int, int]:
    """What forks and trials hold of a host: memory, disk and slots."""
    held = holdings()
    sums = select(
        func.coalesce(func.sum(held.c.memory_mib), 0),
        func.coalesce(func.sum(held.c.disk_gib), 0),
        func.count(),
    ).where(held.c.host_id == host_id)
    memory, disk, count = at.execute(sums).one()
    return int(memory), int(disk), int(count)
