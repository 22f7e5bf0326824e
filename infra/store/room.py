"""A host's room: reserved in full for every fork that is placed there and has not ended."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Column, ColumnElement, Connection, case, update

from app.domain.machine import Shape
from app.domain.run import Fork
from infra.store.tables import hosts


def reserve(at: Connection, coming: Iterable[tuple[str, Shape]]) -> None:
    """Take room on each host; the table's constraints refuse what is not there."""
    _move(at, coming, 1)


def give_back(at: Connection, leaving: Iterable[Fork]) -> None:
    """Free the room of forks that leave the hosts that they name."""
    _move(at, ((fork.host_id, fork.shape) for fork in leaving if fork.host_id is not None), -1)


def _move(at: Connection, moving: Iterable[tuple[str, Shape]], sign: int) -> None:
    placed: dict[str, list[Shape]] = {}
    for host_id, shape in moving:
        placed.setdefault(host_id, []).append(shape)
    for host_id, shapes in sorted(placed.items()):
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


def _left(free: Column[int], taken: int, there_is: Column[int]) -> ColumnElement[int]:
    # A host that came back smaller than what was reserved on it never shows more than it has.
    left = free - taken
    return case((left > there_is, there_is), else_=left)
