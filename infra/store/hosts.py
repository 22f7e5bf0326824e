"""Hosts: their fitness, their room, and which forks are placed on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Select, func, or_, select, update

from app.domain.event import Event, EventKind
from app.domain.machine import Fingerprint
from app.domain.money import NS_PER_HOUR, NS_PER_SECOND
from app.domain.placement import Host, Placement, Waiting
from app.domain.quarantine import Quarantine
from app.domain.run import Fork
from app.errors import NotFound
from infra.store import quarantine
from infra.store.engine import AnyRow, Database, insert_new, locked, pages
from infra.store.events import of_fork, tell
from infra.store.room import Place, give_back, reserve
from infra.store.rows import NEEDS, index_of, lock_forks, shape_of, waiting_of
from infra.store.tables import builds, forks, hosts, is_live, is_queued, projects, runs
from infra.store.workers import is_leaving

ALIVE_NS = 15 * NS_PER_SECOND
LISTED_NS = 24 * NS_PER_HOUR
IS_UNPLACED = (is_queued, forks.c.host_id.is_(None), forks.c.stop_asked.is_(None))

OLDEST_FIRST = (runs.c.created_ns, runs.c.run_id, forks.c.index)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A fork that waits for a place, and the one that it is to take."""

    run_id: str
    index: int
    place: Place


class Hosts:
    """`app.ports.store.Hosts`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(self, fingerprint: Fingerprint, slots: int) -> None:
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            whole = _whole(fingerprint, slots) | {"heartbeat_ns": now_ns}
            new = whole | {
                "host_id": fingerprint.host_id,
                "mounted": (),
                "strikes": quarantine.NO_STRIKES,
                "self_tests": 0,
            }
            if insert_new(at, hosts, new):
                return
            host_id = fingerprint.host_id
            at.execute(update(hosts).where(hosts.c.host_id == host_id).values(whole))
            recount(at, host_id)

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
        # Behind a project that is at its limit nobody else waits: it is listed as far as its limit has room.
        within = or_(projects.c.max_forks.is_(None), forks.c.fork_id.in_(_in_turn()))
        first = (
            select(*NEEDS, builds.c.build_id)
            .join(runs, runs.c.run_id == forks.c.run_id)
            .join(projects, projects.c.project_id == forks.c.project_id)
            .outerjoin(builds, builds.c.template_fork_id == forks.c.fork_id)
            .where(*IS_UNPLACED, within)
            .order_by(*OLDEST_FIRST)
            .limit(limit)
        )
        with self._database.read() as at:
            return tuple(waiting_of(row, row.build_id) for row in at.execute(first))

    def assign(self, placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
        by_fork = {each.fork_id: each for each in placements}
        with self._database.write() as at:
            places = _lock_unplaced(at, by_fork)
            unplaced = [each for fork_id, each in by_fork.items() if fork_id in places]
            fitting = _allowed(at, _fitting(at, unplaced, places), places)
            _place(at, fitting)
            reserve(at, (places[each.fork_id].place for each in fitting))
            told = [_placed(each, places[each.fork_id]) for each in fitting]
            tell(at, told)
        return tuple(fitting)

    def unassign_dead(self) -> int:
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            silent = hosts.c.heartbeat_ns < now_ns - ALIVE_NS
            shut = or_(silent, hosts.c.quarantine.is_not(None), is_leaving(now_ns))
            leaving = lock_forks(
                at, is_queued, forks.c.host_id.in_(select(hosts.c.host_id).where(shut))
            )
            for page in pages([fork.fork_id for fork in leaving]):
                at.execute(update(forks).where(forks.c.fork_id.in_(page)).values(host_id=None))
            give_back(at, leaving)
            tell(at, [_unplaced(fork) for fork in leaving])
            return len(leaving)

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


def _in_turn() -> Select[tuple[str]]:
    """Unplaced forks of limited projects, of each the oldest that its limit has room for."""
    turn = func.row_number().over(partition_by=forks.c.project_id, order_by=OLDEST_FIRST)
    room = (projects.c.max_forks - projects.c.live_forks).label("room")
    turns = (
        select(forks.c.fork_id, turn.label("turn"), room)
        .join(runs, runs.c.run_id == forks.c.run_id)
        .join(projects, projects.c.project_id == forks.c.project_id)
        .where(*IS_UNPLACED, projects.c.max_forks.is_not(None))
        .subquery()
    )
    return select(turns.c.fork_id).where(turns.c.turn <= turns.c.room)


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


def hosts_of(at: Connection, now_ns: int) -> tuple[Host, ...]:
    """All hosts heard of in the last day, by id."""
    rows = at.execute(
        select(hosts, is_leaving(now_ns).label("draining"))
        .where(hosts.c.heartbeat_ns > now_ns - LISTED_NS)
        .order_by(hosts.c.host_id)
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
        draining=row.draining,
        heartbeat_age_ns=max(0, now_ns - row.heartbeat_ns),
        quarantine=row.quarantine,
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


def _placed(each: Placement, there: Unplaced) -> Event:
    return Event(
        there.run_id,
        EventKind.PLACED,
        each.fork_id,
        there.index,
        host_id=each.host_id,
        reason=each.reason,
    )


def _unplaced(fork: Fork) -> Event:
    why = f"{fork.host_id} is silent, drains or is in quarantine"
    return replace(of_fork(EventKind.UNPLACED, fork, reason=why), host_id=None)


def _lock_unplaced(at: Connection, chosen: Mapping[str, Placement]) -> dict[str, Unplaced]:
    """Those of the forks that still wait for a place, locked, with the room that each is to take."""
    unplaced = select(*NEEDS, forks.c.project_id, forks.c.index).where(*IS_UNPLACED)
    places: dict[str, Unplaced] = {}
    for page in pages(sorted(chosen)):
        named = unplaced.where(forks.c.fork_id.in_(page)).order_by(forks.c.fork_id)
        for row in at.execute(locked(named)):
            host_id = chosen[row.fork_id].host_id
            place = Place(host_id, row.project_id, shape_of(row))
            places[row.fork_id] = Unplaced(row.run_id, index_of(row), place)
    return places


def _fitting(
    at: Connection, placements: list[Placement], places: dict[str, Unplaced]
) -> list[Placement]:
    """Those of the placements, in their order, that the locked hosts have room for."""
    named = sorted({each.host_id for each in placements})
    rows = at.execute(
        locked(select(hosts).where(hosts.c.host_id.in_(named)).order_by(hosts.c.host_id))
    )
    left = {
        row.host_id: (row.free_memory_mib, row.free_disk_gib, row.free_slots)
        for row in rows
        if row.quarantine is None
    }
    fitting = []
    for each in placements:
        memory, disk, slots = left.get(each.host_id, (0, 0, 0))
        shape = places[each.fork_id].place.shape
        after = (memory - shape.memory_mib, disk - shape.disk_gib, slots - 1)
        if min(after) >= 0:
            left[each.host_id] = after
            fitting.append(each)
    return fitting


def _allowed(
    at: Connection, placements: list[Placement], places: dict[str, Unplaced]
) -> list[Placement]:
    """Those of the placements, in their order, that the limits of their projects, locked, allow."""
    named = sorted({places[each.fork_id].place.project_id for each in placements})
    rows = at.execute(
        locked(
            select(projects).where(projects.c.project_id.in_(named)).order_by(projects.c.project_id)
        )
    )
    left = {
        row.project_id: row.max_forks - row.live_forks for row in rows if row.max_forks is not None
    }
    allowed = []
    for each in placements:
        project_id = places[each.fork_id].place.project_id
        if left.get(project_id) == 0:
            continue
        if project_id in left:
            left[project_id] -= 1
        allowed.append(each)
    return allowed


def _place(at: Connection, fitting: list[Placement]) -> None:
    by_host: dict[str, list[str]] = {}
    for each in fitting:
        by_host.setdefault(each.host_id, []).append(each.fork_id)
    for host_id, fork_ids in by_host.items():
        for page in pages(fork_ids):
            at.execute(update(forks).where(forks.c.fork_id.in_(page)).values(host_id=host_id))
