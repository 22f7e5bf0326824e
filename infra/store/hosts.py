"""Hosts: their fitness, their room, and which forks are placed on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, func, select, update

from app.domain.machine import Fingerprint, Shape
from app.domain.money import NS_PER_HOUR, NS_PER_SECOND
from app.domain.placement import Host, Placement, Waiting
from app.errors import NotFound
from infra.store.engine import AnyRow, Database, insert_new, locked, pages
from infra.store.room import give_back, reserve
from infra.store.rows import NEEDS, lock_forks, shape_of, waiting_of
from infra.store.tables import builds, forks, hosts, is_live, is_queued, runs

ALIVE_NS = 15 * NS_PER_SECOND
LISTED_NS = 24 * NS_PER_HOUR


class Hosts:
    """`app.ports.store.Hosts`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(self, fingerprint: Fingerprint, slots: int) -> None:
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            whole = _whole(fingerprint, slots) | {"heartbeat_ns": now_ns}
            new = whole | {"host_id": fingerprint.host_id, "mounted": ()}
            if insert_new(at, hosts, new):
                return
            at.execute(locked(select(hosts).where(hosts.c.host_id == fingerprint.host_id)))
            memory, disk, placed = _reserved(at, fingerprint.host_id)
            free = {
                "free_memory_mib": max(0, fingerprint.memory_mib - memory),
                "free_disk_gib": max(0, fingerprint.disk_gib - disk),
                "free_slots": max(0, slots - placed),
            }
            at.execute(
                update(hosts).where(hosts.c.host_id == fingerprint.host_id).values(whole | free)
            )

    def heartbeat(self, host_id: str, mounted: tuple[str, ...]) -> None:
        with self._database.write() as at:
            beaten = at.execute(
                update(hosts)
                .where(hosts.c.host_id == host_id)
                .values(heartbeat_ns=self._database.now_ns(at), mounted=mounted)
            )
        if beaten.rowcount == 0:
            raise NotFound("unknown_host", f"host {host_id} has not been registered")

    def list(self) -> tuple[Host, ...]:
        with self._database.read() as at:
            return hosts_of(at, self._database.now_ns(at))

    def waiting(self, limit: int) -> tuple[Waiting, ...]:
        with self._database.read() as at:
            rows = at.execute(
                select(*NEEDS, builds.c.build_id)
                .join(runs, runs.c.run_id == forks.c.run_id)
                .outerjoin(builds, builds.c.template_fork_id == forks.c.fork_id)
                .where(is_queued, forks.c.host_id.is_(None), forks.c.stop_asked.is_(None))
                .order_by(runs.c.created_ns, runs.c.run_id, forks.c.index)
                .limit(limit)
            )
            return tuple(waiting_of(row, row.build_id) for row in rows)

    def assign(self, placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
        by_fork = {each.fork_id: each for each in placements}
        with self._database.write() as at:
            shapes = _lock_unplaced(at, by_fork)
            unplaced = [each for fork_id, each in by_fork.items() if fork_id in shapes]
            fitting = _fitting(at, unplaced, shapes)
            _place(at, fitting)
            reserve(at, ((each.host_id, shapes[each.fork_id]) for each in fitting))
        return tuple(fitting)

    def unassign_dead(self) -> int:
        with self._database.write() as at:
            silent_ns = self._database.now_ns(at) - ALIVE_NS
            dead = select(hosts.c.host_id).where(hosts.c.heartbeat_ns < silent_ns)
            leaving = lock_forks(at, is_queued, forks.c.host_id.in_(dead))
            for page in pages([fork.fork_id for fork in leaving]):
                at.execute(update(forks).where(forks.c.fork_id.in_(page)).values(host_id=None))
            give_back(at, leaving)
            return len(leaving)

    def placed(self) -> tuple[tuple[str, str, int], ...]:
        build_id = func.coalesce(builds.c.build_id, "").label("build_id")
        with self._database.read() as at:
            rows = at.execute(
                select(forks.c.host_id, build_id, func.count().label("waiting"))
                .outerjoin(builds, builds.c.template_fork_id == forks.c.fork_id)
                .where(is_queued, forks.c.host_id.is_not(None))
                .group_by(forks.c.host_id, build_id)
                .order_by(forks.c.host_id, build_id)
            )
            return tuple((row.host_id, row.build_id, row.waiting) for row in rows)


def hosts_of(at: Connection, now_ns: int) -> tuple[Host, ...]:
    """All hosts heard of in the last day, by id."""
    rows = at.execute(
        select(hosts).where(hosts.c.heartbeat_ns > now_ns - LISTED_NS).order_by(hosts.c.host_id)
    )
    return tuple(_host(row, now_ns) for row in rows)


def _host(row: AnyRow, now_ns: int) -> Host:
    return Host(
        host_id=row.host_id,
        fingerprint=row.fingerprint,
        free_memory_mib=row.free_memory_mib,
        free_disk_gib=row.free_disk_gib,
        slots=row.slots,
        free_slots=row.free_slots,
        mounted=row.mounted,
        alive=now_ns - row.heartbeat_ns <= ALIVE_NS,
        heartbeat_age_ns=max(0, now_ns - row.heartbeat_ns),
    )


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
    """What forks hold of a host: memory, disk and slots."""
    held = select(
        func.coalesce(func.sum(forks.c.memory_mib), 0),
        func.coalesce(func.sum(forks.c.disk_gib), 0),
        func.count(),
    ).where(forks.c.host_id == host_id, is_live)
    memory, disk, count = at.execute(held).one()
    return int(memory), int(disk), int(count)


def _lock_unplaced(at: Connection, fork_ids: Iterable[str]) -> dict[str, Shape]:
    """Those of the forks that still wait for a place, locked, with their shapes."""
    unplaced = select(*NEEDS).where(
        is_queued, forks.c.host_id.is_(None), forks.c.stop_asked.is_(None)
    )
    shapes: dict[str, Shape] = {}
    for page in pages(sorted(fork_ids)):
        named = unplaced.where(forks.c.fork_id.in_(page)).order_by(forks.c.fork_id)
        shapes |= {row.fork_id: shape_of(row) for row in at.execute(locked(named))}
    return shapes


def _fitting(
    at: Connection, placements: list[Placement], shapes: dict[str, Shape]
) -> list[Placement]:
    """Those of the placements, in their order, that the locked hosts have room for."""
    named = sorted({each.host_id for each in placements})
    rows = at.execute(
        locked(select(hosts).where(hosts.c.host_id.in_(named)).order_by(hosts.c.host_id))
    )
    left = {row.host_id: (row.free_memory_mib, row.free_disk_gib, row.free_slots) for row in rows}
    fitting = []
    for each in placements:
        memory, disk, slots = left.get(each.host_id, (0, 0, 0))
        shape = shapes[each.fork_id]
        after = (memory - shape.memory_mib, disk - shape.disk_gib, slots - 1)
        if min(after) >= 0:
            left[each.host_id] = after
            fitting.append(each)
    return fitting


def _place(at: Connection, fitting: list[Placement]) -> None:
    by_host: dict[str, list[str]] = {}
    for each in fitting:
        by_host.setdefault(each.host_id, []).append(each.fork_id)
    for host_id, fork_ids in by_host.items():
        for page in pages(fork_ids):
            at.execute(update(forks).where(forks.c.fork_id.in_(page)).values(host_id=host_id))
