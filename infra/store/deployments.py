"""The one row of the deployment: which history this database is of, in which epoch, how far it has come."""

from __future__ import annotations

from secrets import token_hex

from sqlalchemy import ColumnElement, Connection, func, or_, select, update

from app.domain.deployment import Deployment, next_epoch
from app.domain.money import NS_PER_SECOND
from infra.store.engine import AnyRow, Database, locked
from infra.store.tables import deployments, hosts

# Hosts that were heard of within this time are asked whether the database went back.
HEARD_NS = 60 * NS_PER_SECOND


class Deployments:
    """`app.ports.deployment.Deployments`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def now(self) -> Deployment:
        with self._database.read() as at:
            return deployment_of(at)

    def beat(self, epoch: int) -> Deployment:
        on = update(deployments).where(deployments.c.epoch == epoch)
        with self._database.write() as at:
            at.execute(on.values(beat=deployments.c.beat + 1))
            return deployment_of(at)

    def begin_epoch(self, *, copy: bool = False) -> Deployment:
        with self._database.write() as at:
            before = _deployment(at.execute(locked(select(deployments))).one())
            now_ns = self._database.now_ns(at)
            remembered = select(hosts.c.ahead_epoch).where(hosts.c.ahead_epoch.is_not(None))
            epoch = next_epoch(before, now_ns, at.execute(remembered).scalars())
            begun = {"epoch": epoch, "since_ns": now_ns}
            named = {"deployment_id": token_hex(8)} if copy else {}
            at.execute(update(deployments).values(begun | named))
            return deployment_of(at)

    def tell_ahead(self, host_id: str, remembered: tuple[int, int] | None) -> None:
        epoch, beat = remembered or (None, None)
        told = {"ahead_epoch": epoch, "ahead_beat": beat}
        with self._database.write() as at:
            at.execute(update(hosts).where(hosts.c.host_id == host_id).values(told))

    def ahead(self) -> tuple[int, int]:
        with self._database.read() as at:
            since_ns = self._database.now_ns(at) - HEARD_NS
            heard_of = select(func.count()).where(hosts.c.heartbeat_ns >= since_ns)
            more = heard_of.where(remembers_more(deployment_of(at)))
            return int(at.execute(more).scalar_one()), int(at.execute(heard_of).scalar_one())


def deployment_of(at: Connection) -> Deployment:
    """As this transaction sees it."""
    return _deployment(at.execute(select(deployments)).one())


def remembers_more(now: Deployment) -> ColumnElement[bool]:
    """Of a host's row: it has told of an epoch or a beat that the database has not come to."""
    same = (hosts.c.ahead_epoch == now.epoch) & (hosts.c.ahead_beat > now.beat)
    return or_(hosts.c.ahead_epoch > now.epoch, same)


def _deployment(row: AnyRow) -> Deployment:
    return Deployment(row.deployment_id, row.epoch, row.since_ns, row.beat)
