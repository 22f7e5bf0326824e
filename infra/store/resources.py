"""Volumes and snapshots of the cloud account, each noted before the cloud is asked for it."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, delete, select, update

from app.domain.cloud import Resource, ResourceKind
from app.domain.money import NS_PER_HOUR
from app.errors import Conflict, NotFound
from infra.store.engine import AnyRow, Database, insert_new
from infra.store.rows import columns_of, noun_of
from infra.store.tables import resources

# A statement of storage can be had for a year, and the month that it is asked for in.
KEPT_NS = 400 * 24 * NS_PER_HOUR

_IS_LIVING = resources.c.gone_ns.is_(None)


class Resources:
    """`app.ports.cloud.Resources`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def intend(self, resource: Resource, within_ns: int) -> Resource:
        with self._database.write() as at:
            now_ns = self._database.now_ns(at)
            new = replace(
                resource,
                cloud_id=None,
                intended_ns=now_ns,
                deadline_ns=now_ns + within_ns,
                made_ns=None,
                gone_ns=None,
            )
            insert_new(at, resources, columns_of(new))
            return noun_of(Resource, _row(at, resource.token))

    def made(self, token: str, cloud_id: str) -> None:
        with self._database.write() as at:
            written = at.execute(
                update(resources)
                .where(resources.c.token == token, resources.c.cloud_id.is_(None), _IS_LIVING)
                .values(cloud_id=cloud_id, made_ns=self._database.now_ns(at))
            )
            if written.rowcount == 0 and _living(at, token).cloud_id != cloud_id:
                raise Conflict(
                    "resource_differs",
                    f"{token} has been made as another one than {cloud_id}, which nobody owns",
                )

    def settle(self, token: str) -> None:
        with self._database.write() as at:
            written = at.execute(
                update(resources)
                .where(resources.c.token == token, resources.c.cloud_id.is_not(None), _IS_LIVING)
                .values(deadline_ns=None)
            )
            if written.rowcount == 0 and _living(at, token).cloud_id is None:
                raise Conflict("resource_not_made", f"the cloud has not answered for {token} yet")

    def gone(self, token: str) -> None:
        with self._database.write() as at:
            at.execute(
                update(resources)
                .where(resources.c.token == token, _IS_LIVING)
                .values(gone_ns=self._database.now_ns(at), deadline_ns=None)
            )

    def forget(self) -> None:
        with self._database.write() as at:
            old_ns = self._database.now_ns(at) - KEPT_NS
            at.execute(delete(resources).where(resources.c.gone_ns < old_ns))

    def of_bundle(self, bundle_id: str) -> tuple[Resource, ...]:
        return self._read(_IS_LIVING, resources.c.bundle_id == bundle_id)

    def of_host(self, host_id: str) -> tuple[Resource, ...]:
        return self._read(_IS_LIVING, resources.c.host_id == host_id)

    def living(self, kind: ResourceKind | None = None) -> tuple[Resource, ...]:
        if kind is None:
            return self._read(_IS_LIVING)
        return self._read(_IS_LIVING, resources.c.kind == kind)

    def made_within(self, begin_ns: int, end_ns: int) -> tuple[Resource, ...]:
        return self._read(
            resources.c.made_ns < end_ns, _IS_LIVING | (resources.c.gone_ns > begin_ns)
        )

    def _read(self, *which: ColumnElement[bool]) -> tuple[Resource, ...]:
        ask = select(resources).where(*which)
        with self._database.read() as at:
            rows = at.execute(ask.order_by(resources.c.intended_ns, resources.c.token)).all()
        return tuple(noun_of(Resource, row) for row in rows)


def _living(at: Connection, token: str) -> AnyRow:
    """Raises NotFound(unknown_resource), Conflict(resource_gone)."""
    row = _row(at, token)
    if row.gone_ns is not None:
        raise Conflict(
            "resource_gone", f"{token} has been given up: what the cloud made is nobody's"
        )
    return row


def _row(at: Connection, token: str) -> AnyRow:
    row = at.execute(select(resources).where(resources.c.token == token)).one_or_none()
    if row is None:
        raise NotFound("unknown_resource", f"nothing was ever intended under {token}")
    return row
