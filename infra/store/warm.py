"""Warm targets, each with the version that it means now; and which bundles the forks on a host need."""

from __future__ import annotations

from sqlalchemy import ColumnElement, case, delete, func, insert, select

from app.domain.mounts import Needs
from app.domain.run import Role
from app.domain.snapshot import Snapshot, split_ref
from app.domain.warm import WarmTarget
from infra.store.engine import Database
from infra.store.rows import noun_of
from infra.store.snapshots import find_versions, is_stored
from infra.store.tables import (
    builds,
    forks,
    is_live,
    is_queued,
    is_unsettled,
    snapshots,
    warm_targets,
)

NEWEST = 0


class WarmTargets:
    """`app.ports.warm.WarmTargets`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def set(self, project_id: str, ref: str, hosts: int) -> WarmTarget | None:
        with self._database.write() as at:
            # Locked: no deletion of the snapshot overlooks its new target, and two that set one take turns.
            snapshot = noun_of(Snapshot, find_versions(at, project_id, ref, lock=True)[0])
            version = split_ref(ref)[1]
            key = {
                "project_id": project_id,
                "name": snapshot.name,
                "version": version or NEWEST,
            }
            at.execute(delete(warm_targets).filter_by(**key))
            if hosts == 0:
                return None
            new = key | {"hosts": hosts, "set_ns": self._database.now_ns(at)}
            at.execute(insert(warm_targets).values(new))
            return _target(snapshot, version, hosts)

    def list(self, project_id: str | None = None) -> tuple[WarmTarget, ...]:
        stored = snapshots.alias()
        newest = (
            select(func.max(stored.c.version))
            .where(
                stored.c.project_id == warm_targets.c.project_id,
                stored.c.name == warm_targets.c.name,
                stored.c.deleted_ns.is_(None),
            )
            .correlate(warm_targets)
            .scalar_subquery()
        )
        of_target = (
            (snapshots.c.project_id == warm_targets.c.project_id)
            & (snapshots.c.name == warm_targets.c.name)
            & (
                snapshots.c.version
                == func.coalesce(func.nullif(warm_targets.c.version, NEWEST), newest)
            )
        )
        named = (
            select(snapshots, warm_targets.c.version.label("asked"), warm_targets.c.hosts)
            .select_from(warm_targets)
            .join(snapshots, of_target)
            .where(is_stored)
            .order_by(warm_targets.c.project_id, warm_targets.c.name, warm_targets.c.version)
        )
        if project_id is not None:
            named = named.where(warm_targets.c.project_id == project_id)
        with self._database.read() as at:
            return tuple(
                _target(noun_of(Snapshot, row), row.asked or None, row.hosts)
                for row in at.execute(named)
            )

    def needs(self, host_id: str) -> Needs:
        live = (
            select(
                forks.c.bundle_id,
                func.min(_waits_since()).label("since_ns"),
                func.count(_waits_since()).label("waiting"),
            )
            .where(forks.c.host_id == host_id, is_live, forks.c.role == Role.FORK)
            .group_by(forks.c.bundle_id)
        )
        # A template's host holds its candidate, which has the build's id, until the build is settled.
        held = (
            select(builds.c.build_id)
            .join(forks, forks.c.fork_id == builds.c.template_fork_id)
            .where(is_unsettled, forks.c.host_id == host_id)
        )
        with self._database.read() as at:
            rows = at.execute(live).all()
            candidates = at.execute(held).scalars().all()
        waited = sorted((row.since_ns, row.bundle_id, row.waiting) for row in rows if row.waiting)
        return Needs(
            waiting={bundle_id: count for _, bundle_id, count in waited},
            in_use=frozenset(row.bundle_id for row in rows),
            candidates=frozenset(candidates),
        )


def _waits_since() -> ColumnElement[int | None]:
    return case((is_queued, forks.c.queued_ns), else_=None)


def _target(snapshot: Snapshot, version: int | None, hosts: int) -> WarmTarget:
    return WarmTarget(
        project_id=snapshot.project_id,
        name=snapshot.name,
        version=version,
        hosts=hosts,
        ref=snapshot.ref,
        bundle_id=snapshot.bundle_id,
        restore_key=str(snapshot.restore_key),
        shape=snapshot.definition.shape,
    )
