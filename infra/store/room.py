"""Room: reserved in full, on its host and of its project's limit, for every fork that is placed and has not ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, case, update

from app.domain.machine import Shape
from app.domain.run import Fork
from infra.store.tables import hosts, projects


class Place(NamedTuple):
    """The room of one fork on a host."""

    host_id: str
    project_id: str
    shape: Shape


def reserve(at: Connection, coming: Iterable[Place]) -> None:
    """Take room; the tables' constraints refuse what is not there."""
    _move(at, list(coming), 1)


def give_back(at: Connection, leaving: Iterable[Fork]) -> None:
    """Free the room of forks that leave the hosts that they name."""
    places = [
        Place(fork.host_id, fork.project_id, fork.shape)
        for fork in leaving
        if fork.host_id is not None
    ]
    _move(at, places, -1)


def _move(at: Connection, moving: list[Place], sign: int) -> None:
    placed: dict[str, list[Shape]] = {}
    for place in moving:
        placed.setdefault(place.host_id, []).append(place.shape)
    for host_id, shapes in sorted(placed.items()):
        move_on(at, host_id, shapes, sign)
    for project_id, count in sorted(Counter(place.project_id for place in moving).items()):
        at.execute(
            update(projects)
            .where(projects.c.project_id == project_id)
            .values(live_forks=_counted(projects.c.live_forks, sign * count))
        )


def move_on(at: Connection, host_id: str, shapes: list[Shape], sign: int) -> None:
    """Take room of a host (sign 1), or give it back (-1)."""
    memory = sign * sum(shape.memory_mib for shape in shapes)
    disk = sign * sum(shape.disk_gib for shape in shapes)
    at.execute(
        update(hosts)
        .where(hosts.c.host_id == host_id)
        .values(
            free_memory_mib=_left(hosts.c.free_memory_mib, memory, hosts.c.memory_mib),
            free_disk_gib=_left(hosts.c.free_disk_gib, disk, hosts.c.disk_gib),
            free_slots=_left(hosts.c.free_slots, sign * len(shapes), hosts.c.slots),
        )
    )


def _counted(live: Column[int], more: int) -> ColumnElement[int]:
    # Hosts count too, and one may have counted too far down: no other's fork must fail to end because of it. The reaper
    # counts again.
    after = live + more
    return case((after < 0, 0), else_=after)


def _left(free: Column[int], taken: int, there_is: Column[int]) -> ColumnElement[int]:
    # A host that came back smaller than what was reserved on it never shows more than it has.
    left = free - taken
    return case((left > there_is, there_is), else_=left)
