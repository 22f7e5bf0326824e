"""Worker processes of hosts: their heartbeats, by the database's clock, and whether they are to drain."""

from __future__ import annotations

from sqlalchemy import ColumnElement, delete, exists, insert, select, update

from app.domain.money import NS_PER_HOUR
from app.domain.worker import CLAIM_NS, Worker
from app.errors import NotFound, StaleClaim
from infra.store.engine import AnyRow, Database
from infra.store.tables import hosts, workers

# A host that went for good took its processes with it, and nobody is left there to say so.
FORGOTTEN_NS = 24 * NS_PER_HOUR


class Workers:
    """`app.ports.workers.Workers`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, worker: Worker) -> None:
        with self._database.write() as at:
            here = select(hosts.c.host_id).where(hosts.c.host_id == worker.host_id)
            if at.execute(here).first() is None:
                raise NotFound("unknown_host", f"host {worker.host_id} has not been registered")
            now_ns = self._database.now_ns(at)
            at.execute(
                insert(workers).values(
                    claim=worker.claim,
                    host_id=worker.host_id,
                    boot_id=worker.boot_id,
                    pid=worker.pid,
                    started_ticks=worker.started_ticks,
                    version=worker.version,
                    draining=worker.draining,
                    started_ns=now_ns,
                    heartbeat_ns=now_ns,
                    revision=worker.revision,
                )
            )

    def beat(self, claim: str) -> bool:
        with self._database.write() as at:
            beaten = at.execute(
                update(workers)
                .where(workers.c.claim == claim)
                .values(heartbeat_ns=self._database.now_ns(at))
                .returning(workers.c.draining)
            ).first()
        if beaten is None:
            raise StaleClaim(claim)
        return bool(beaten.draining)

    def on(self, host_id: str) -> tuple[Worker, ...]:
        with self._database.read() as at:
            now_ns = self._database.now_ns(at)
            rows = at.execute(
                select(workers)
                .where(workers.c.host_id == host_id)
                .order_by(workers.c.started_ns, workers.c.claim)
            )
            return tuple(_worker(row, now_ns) for row in rows)

    def claims(self) -> frozenset[str]:
        with self._database.write() as at:
            old_ns = self._database.now_ns(at) - FORGOTTEN_NS
            at.execute(delete(workers).where(workers.c.heartbeat_ns < old_ns))
            return frozenset(at.execute(select(workers.c.claim)).scalars())

    def drain(self, host_id: str) -> tuple[Worker, ...]:
        with self._database.write() as at:
            at.execute(update(workers).where(workers.c.host_id == host_id).values(draining=True))
        return self.on(host_id)

    def end(self, claim: str) -> None:
        with self._database.write() as at:
            at.execute(delete(workers).where(workers.c.claim == claim))


def is_leaving(now_ns: int) -> ColumnElement[bool]:
    """Of a host's row: a process of it drains, and none is there that takes anything new."""
    here = (workers.c.host_id == hosts.c.host_id, workers.c.heartbeat_ns >= now_ns - CLAIM_NS)
    return exists().where(*here, workers.c.draining) & ~exists().where(*here, ~workers.c.draining)


def _worker(row: AnyRow, now_ns: int) -> Worker:
    return Worker(
        claim=row.claim,
        host_id=row.host_id,
        boot_id=row.boot_id,
        pid=row.pid,
        started_ticks=row.started_ticks,
        version=row.version,
        draining=row.draining,
        heartbeat_age_ns=max(0, now_ns - row.heartbeat_ns),
        revision=row.revision,
    )
