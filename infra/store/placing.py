"""Forks that wait for a place, and the places that they are given: every choice is checked under the rows' locks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Select, and_, func, not_, or_, select, update

from app.domain.event import Event, EventKind
from app.domain.placement import Placement, Waiting
from app.domain.run import Fork
from infra.store.engine import AnyRow, locked, pages
from infra.store.events import of_fork, tell
from infra.store.room import Place, give_back, reserve
from infra.store.rows import NEEDS, index_of, shape_of, waiting_of
from infra.store.tables import builds, forks, hosts, is_queued, projects, runs

IS_UNPLACED = (is_queued, forks.c.host_id.is_(None), forks.c.stop_asked.is_(None))

OLDEST_FIRST = (runs.c.created_ns, runs.c.run_id, forks.c.index)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A fork that waits for a place, and the one that it is to take."""

    run_id: str
    index: int
    place: Place


def waiting(at: Connection, limit: int) -> tuple[Waiting, ...]:
    """`Hosts.waiting`, in the caller's transaction."""
    # Behind a project that is at its limit nobody else waits: it is listed as far as its limit has room.
    within = or_(projects.c.max_forks.is_(None), forks.c.fork_id.in_(_in_turn()))
    first = needing().where(*IS_UNPLACED, within).order_by(*OLDEST_FIRST).limit(limit)
    return tuple(needed(row) for row in at.execute(first))


def assign(at: Connection, placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
    """`Hosts.assign`, in the caller's transaction."""
    by_fork = {each.fork_id: each for each in placements}
    places = _lock_unplaced(at, by_fork)
    unplaced = [each for fork_id, each in by_fork.items() if fork_id in places]
    fitting = _allowed(at, _fitting(at, unplaced, places), places)
    _place(at, fitting)
    reserve(at, (places[each.fork_id].place for each in fitting))
    tell(at, [_placed(each, places[each.fork_id]) for each in fitting])
    return tuple(fitting)


def placed(at: Connection) -> tuple[tuple[str, str, int], ...]:
    """`Hosts.placed`, in the caller's transaction."""
    build_id = func.coalesce(builds.c.build_id, "").label("build_id")
    rows = at.execute(
        select(forks.c.host_id, build_id, func.count().label("waiting"))
        .outerjoin(builds, builds.c.template_fork_id == forks.c.fork_id)
        .where(is_queued, forks.c.host_id.is_not(None))
        .group_by(forks.c.host_id, build_id)
        .order_by(forks.c.host_id, build_id)
    )
    return tuple((row.host_id, row.build_id, row.waiting) for row in rows)


def needing() -> Select[Any]:
    """Forks with what a placement goes by, for `needed`; runs and projects are joined for conditions."""
    template = forks.alias("template")
    of_build = (builds.c.build_id, builds.c.template_fork_id, template.c.host_id.label("holder"))
    return (
        select(*NEEDS, *of_build)
        .join(runs, runs.c.run_id == forks.c.run_id)
        .join(projects, projects.c.project_id == forks.c.project_id)
        .outerjoin(builds, builds.c.run_id == forks.c.run_id)
        .outerjoin(template, template.c.fork_id == builds.c.template_fork_id)
    )


def needed(row: AnyRow) -> Waiting:
    """A row of `needing`: a build's template boots anywhere, its other forks fork from what the template's host has."""
    if row.template_fork_id == row.fork_id:
        return waiting_of(row, row.build_id)
    return waiting_of(row, held_by=row.holder)


def unassign(at: Connection, leaving: tuple[Fork, ...]) -> None:
    """Take queued forks, locked, off their hosts: they wait for another place, the room is given back."""
    for page in pages([fork.fork_id for fork in leaving]):
        at.execute(update(forks).where(forks.c.fork_id.in_(page)).values(host_id=None))
    give_back(at, leaving)
    tell(at, [_unplaced(fork) for fork in leaving])


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
    room = (hosts.c.free_memory_mib, hosts.c.free_disk_gib, hosts.c.free_slots)
    fit = and_(
        hosts.c.quarantine.is_(None),
        hosts.c.gone_ns.is_(None),
        hosts.c.retired_ns.is_(None),
        not_(hosts.c.disk_nearly_full),
    )
    found = select(hosts.c.host_id, *room, fit.label("fit")).where(hosts.c.host_id.in_(named))
    rows = at.execute(locked(found.order_by(hosts.c.host_id)))
    left = {
        row.host_id: (row.free_memory_mib, row.free_disk_gib, row.free_slots)
        for row in rows
        if row.fit
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


def _placed(each: Placement, there: Unplaced) -> Event:
    return Event(
        there.run_id,
        EventKind.PLACED,
        each.fork_id,
        there.index,
        host_id=each.host_id,
        reason=each.reason,
        data={"against": [some.as_dict() for some in each.against]},
    )


def _unplaced(fork: Fork) -> Event:
    why = f"{fork.host_id} is silent, drains, is in quarantine or has its disk nearly full"
    return replace(of_fork(EventKind.UNPLACED, fork, reason=why), host_id=None)
