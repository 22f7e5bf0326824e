"""Room that machines of our own hold on a host, for as long as they may live: no fork is placed into it."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from app.domain.machine import Shape
from infra.store.engine import AnyRow, locked
from infra.store.room import move_on
from infra.store.rows import shape_of
from infra.store.tables import hosts, trials


def hold(at: Connection, host_id: str, name: str, shape: Shape, until_ns: int) -> bool:
    """Take room for a trial; False if the host has none for it, or is not known."""
    row = _lock_host(at, host_id)
    if row is None or row.free_slots < 1:
        return False
    if row.free_memory_mib < shape.memory_mib or row.free_disk_gib < shape.disk_gib:
        return False
    room = {"vcpus": shape.vcpus, "memory_mib": shape.memory_mib, "disk_gib": shape.disk_gib}
    at.execute(insert(trials).values(name=name, host_id=host_id, until_ns=until_ns, **room))
    move_on(at, host_id, [shape], 1)
    return True


def let_go(at: Connection, name: str) -> None:
    """Give a trial's room back. Twice is safe."""
    held = at.execute(select(trials).where(trials.c.name == name)).one_or_none()
    if held is None:
        return
    _lock_host(at, held.host_id)
    if at.execute(delete(trials).where(trials.c.name == name)).rowcount:
        move_on(at, held.host_id, [shape_of(held)], -1)


def old(at: Connection, now_ns: int) -> tuple[str, ...]:
    """Trials whose time is over: their keepers have ended them, and nobody said so."""
    return tuple(at.execute(select(trials.c.name).where(trials.c.until_ns < now_ns)).scalars())


def _lock_host(at: Connection, host_id: str) -> AnyRow | None:
    return at.execute(locked(select(hosts).where(hosts.c.host_id == host_id))).one_or_none()
