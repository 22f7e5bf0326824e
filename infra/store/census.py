"""The rows counted for those who watch: live rows only, each by an index of its own, however many have ended."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlalchemy import Connection, Select, func, select

from app.domain.census import Census, HostStanding
from app.domain.placement import Host
from app.domain.run import ExecState
from infra.store.engine import Database
from infra.store.hosts import hosts_of
from infra.store.tables import (
    attempts,
    execs,
    forks,
    is_active,
    is_live,
    is_open,
    is_queued,
    is_unfinished,
    runs,
)


class Censuses:
    """`Census` on demand."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self) -> Census:
        """What stands now, from one state of all rows. Raises Unavailable."""
        with self._database.read() as at:
            now_ns = self._database.now_ns(at)
            hosts = hosts_of(at, now_ns)
            return Census(
                forks=_forks(at),
                runs=_count(at, select(func.count()).select_from(runs).where(is_active)),
                machines=_count(at, select(func.count()).select_from(attempts).where(is_open)),
                hosts=Counter(_standing(host) for host in hosts),
                slots=sum(host.slots for host in hosts),
                free_slots=sum(host.free_slots for host in hosts if host.takes_forks),
                unplaced_age_ns=_age(at, now_ns, _oldest_unplaced()),
                queued_exec_age_ns=_age(at, now_ns, _oldest_queued_exec()),
            )


def _forks(at: Connection) -> dict[Any, int]:
    by_state = (
        select(forks.c.state, func.count().label("forks")).where(is_live).group_by(forks.c.state)
    )
    return {row.state: row.forks for row in at.execute(by_state)}


def _oldest_unplaced() -> Select[Any]:
    return select(func.min(forks.c.queued_ns)).where(is_queued, forks.c.host_id.is_(None))


def _oldest_queued_exec() -> Select[Any]:
    waits = execs.c.state == ExecState.QUEUED
    return select(func.min(execs.c.asked_ns)).where(is_unfinished, waits)


def _count(at: Connection, counted: Select[Any]) -> int:
    return int(at.execute(counted).scalar_one())


def _age(at: Connection, now_ns: int, oldest: Select[Any]) -> int:
    since_ns = at.execute(oldest).scalar_one()
    return 0 if since_ns is None else max(0, now_ns - int(since_ns))


def _standing(host: Host) -> HostStanding:
    if not host.alive:
        return HostStanding.LOST
    if host.quarantine is not None:
        return HostStanding.QUARANTINED
    if host.leaves:
        return HostStanding.DRAINING
    return HostStanding.DISK_LOW if host.disk_nearly_full else HostStanding.ALIVE
