"""A host's room: reserved in full for every fork that is placed there and has not ended."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Column, ColumnElement, Connection, case, update

from app.domain.run import Fork
from infra.store.tables import hosts


def reserve(at: Connection, coming: Iterable[Fork]) -> None:
    """Take room for forks on the hosts that they name; the table's constraints refuse what is not there."""
    _move(at, coming, 1)


def give_back(at: Connection, leaving: Iterable[Fork]) -> None:
    """Free the room of forks that leave the hosts that they name."""
    _move(at, leaving, -1)


def _move(at: Connection, moving: Iterable[Fork], sign: int) -> None:
    placed: dict[str, list[Fork]] = {}
    for fork in moving:
        if fork.host_id is not None:
            placed.setdefault(fork.host_id, []).append(fork)
    for host_id, there in sorted(placed.items()):
        at.execute(
            update(hosts)
            .where(hosts.c.host_id == host_id)
            .values(
                free_memory_mib=_left(
                    hosts.c.free_memory_mib,
                    sign * sum(fork.shape.memory_mib for fork in there),
                    hosts.c.memory_mib,
                ),
                free_disk_gib=_left(
                    hosts.c.free_disk_gib,
                    sign * sum(fork.shape.disk_gib for fork in there),
                    hosts.c.disk_gib,
                ),
                free_slots=_left(hosts.c.free_slots, sign * len(there), hosts.c.slots),
            )
        )


def _left(free: Column[int], taken: int, there_is: Column[int]) -> ColumnElement[int]:
    # A host that came back smaller than what was reserved on it never shows more than it has.
    left = free - taken
    return case((left > there_is, there_is), else_=left)
