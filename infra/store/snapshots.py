"""Stored, verified versions by name."""

from __future__ import annotations

from difflib import get_close_matches

from sqlalchemy import Connection, delete, func, select, union, update

from app.domain.snapshot import Snapshot, split_ref
from app.errors import Conflict, NotFound
from infra.store.engine import AnyRow, Database
from infra.store.rows import noun_of
from infra.store.tables import builds, forks, is_live, is_unsettled, snapshots, warm_targets

is_stored = snapshots.c.deleted_ns.is_(None)


class Snapshots:
    """`app.ports.store.Snapshots`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, project_id: str, ref: str) -> Snapshot:
        with self._database.read() as at:
            return noun_of(Snapshot, find_versions(at, project_id, ref)[0])

    def list(self, project_id: str) -> tuple[Snapshot, ...]:
        with self._database.read() as at:
            rows = at.execute(
                select(snapshots)
                .where(snapshots.c.project_id == project_id, is_stored)
                .order_by(snapshots.c.name, snapshots.c.version)
            )
            return tuple(noun_of(Snapshot, row) for row in rows)

    def delete(self, project_id: str, ref: str) -> tuple[Snapshot, ...]:
        with self._database.write() as at:
            going = tuple(
                noun_of(Snapshot, row) for row in find_versions(at, project_id, ref, lock=True)
            )
            _refuse_if_used(at, going)
            at.execute(
                update(snapshots)
                .where(snapshots.c.snapshot_id.in_([each.snapshot_id for each in going]))
                .values(deleted_ns=self._database.now_ns(at))
            )
            _end_targets(at, going)
        return tuple(sorted(going, key=lambda each: each.version))

    def bundle_ids(self) -> frozenset[str]:
        stored = select(snapshots.c.bundle_id).where(is_stored)
        unfinished = select(builds.c.build_id).where(is_unsettled)
        with self._database.read() as at:
            return frozenset(at.execute(union(stored, unfinished)).scalars())


def pin(at: Connection, project_id: str, refs: set[str]) -> None:
    """Keep these versions from being deleted until the transaction ends. Raises NotFound if one was meanwhile."""
    found = select(snapshots).where(snapshots.c.project_id == project_id, snapshots.c.ref.in_(refs))
    for row in at.execute(found.order_by(snapshots.c.ref).with_for_update(read=True)):
        if row.deleted_ns is not None:
            raise NotFound("unknown_snapshot", f"snapshot {row.ref} has been deleted")


def find_versions(at: Connection, project_id: str, ref: str, *, lock: bool = False) -> list[AnyRow]:
    """What a ref names, newest first. Raises NotFound(unknown_snapshot)."""
    try:
        name, version = split_ref(ref)
    except ValueError as malformed:
        raise NotFound("unknown_snapshot", str(malformed)) from malformed
    named = select(snapshots).where(
        snapshots.c.project_id == project_id, snapshots.c.name == name, is_stored
    )
    if version is not None:
        named = named.where(snapshots.c.ref == f"{name}@{version}")
    if lock:
        named = named.with_for_update()
    found = list(at.execute(named.order_by(snapshots.c.version.desc())))
    if not found:
        raise NotFound("unknown_snapshot", _unknown(at, project_id, ref, name))
    return found


def _end_targets(at: Connection, gone: tuple[Snapshot, ...]) -> None:
    """Nothing is kept warm any more of versions that are gone, nor of a name that has none left."""
    project_id, name = gone[0].project_id, gone[0].name
    left = select(func.count()).select_from(snapshots)
    left = left.where(snapshots.c.project_id == project_id, snapshots.c.name == name, is_stored)
    versions = {each.version for each in gone}
    if at.execute(left).scalar_one() == 0:
        versions.add(0)
    at.execute(
        delete(warm_targets).where(
            warm_targets.c.project_id == project_id,
            warm_targets.c.name == name,
            warm_targets.c.version.in_(versions),
        )
    )


def _unknown(at: Connection, project_id: str, ref: str, name: str) -> str:
    stored = select(snapshots.c.name, snapshots.c.version).where(
        snapshots.c.project_id == project_id, is_stored
    )
    rows = list(at.execute(stored))
    near = get_close_matches(name, {row.name for row in rows}, n=3)
    versions = sorted(row.version for row in rows if row.name == name)
    if versions:
        return f"there is no snapshot {ref}; versions of {name}: {', '.join(map(str, versions))}"
    hint = f"; near it: {', '.join(near)}" if near else ""
    return f"there is no snapshot {ref}{hint}"


def _refuse_if_used(at: Connection, going: tuple[Snapshot, ...]) -> None:
    using = at.execute(
        select(forks.c.run_id)
        .where(
            forks.c.project_id == going[0].project_id,
            forks.c.snapshot.in_([each.ref for each in going]),
            is_live,
        )
        .distinct()
        .limit(10)
    )
    run_ids = sorted(using.scalars())
    if run_ids:
        raise Conflict(
            "snapshot_in_use",
            f"{going[0].name} is needed by live runs: {', '.join(run_ids)}",
            runs=run_ids,
        )
