"""The rows counted for those who watch: live rows only, each by an index of its own, however many have ended."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlalchemy import Connection, Select, case, func, select

from app.domain.census import Census, HostStanding
from app.domain.fork import Outcome
from app.domain.health import LATE_NS, Recent
from app.domain.placement import Host
from app.domain.run import ExecState, Role
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
    """`app.ports.census.Censuses`."""

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

    def recent(self, lately_ns: int) -> Recent:
        """`app.ports.census.Censuses.recent`."""
        with self._database.read() as at:
            since_ns = self._database.now_ns(at) - lately_ns
            ended = at.execute(_ended_forks(since_ns)).one()
            return Recent(
                ended_forks=ended.forks,
                env_failed=ended.env_failed,
                late_kills=_count(at, _late_kills(since_ns)),
                vcpus=_count(at, _vcpus_in_use()),
            )


def _ended_forks(since_ns: int) -> Select[int, int]:
    """By their machines, of which there is an index of ends: the newest attempt of a fork is closed as it ends."""
    failed = case((forks.c.outcome == Outcome.ENV_FAILED, forks.c.fork_id))
    return (
        select(
            func.count(func.distinct(forks.c.fork_id)).label("forks"),
            func.count(func.distinct(failed)).label("env_failed"),
        )
        .join_from(attempts, forks, forks.c.fork_id == attempts.c.fork_id)
        .where(attempts.c.closed_ns >= since_ns, forks.c.ended_ns >= since_ns)
        .where(forks.c.role == Role.FORK)
    )


def _late_kills(since_ns: int) -> Select[Any]:
    late = attempts.c.late_ns > LATE_NS
    return select(func.count()).select_from(attempts).where(attempts.c.closed_ns >= since_ns, late)


def _vcpus_in_use() -> Select[Any]:
    return (
        select(func.coalesce(func.sum(forks.c.vcpus), 0))
        .join_from(attempts, forks, forks.c.fork_id == attempts.c.fork_id)
        .where(is_open)
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
