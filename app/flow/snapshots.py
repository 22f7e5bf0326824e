"""What a caller may read of stored snapshots, and which of them no host can restore any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from app.domain.cloud import Resource, ResourceKind
from app.domain.reach import Reachable, reach
from app.domain.snapshot import Snapshot
from app.domain.snapshot_page import Surroundings, snapshot_page
from app.ports import Ports

Answer = dict[str, object]


class Version(NamedTuple):
    """A stored version, and whether it is what its bare name means."""

    row: Snapshot
    latest: bool


def one(ports: Ports, project_id: str, ref: str) -> Answer:
    """A version as a caller reads it; of a bare name the newest. Raises NotFound(unknown_snapshot)."""
    row = ports.snapshots.get(project_id, ref)
    newest = ports.snapshots.get(project_id, row.name)
    version = Version(row, latest=row.version == newest.version)
    return pages(ports, project_id, (version,))[0]


def every(ports: Ports, project_id: str, *, stale: bool) -> tuple[Version, ...]:
    """All versions by name, newest first; with `stale` those that no host which is up can restore, or get at."""
    rows = ports.snapshots.list(project_id)
    newest = {row.name: row.version for row in sorted(rows, key=lambda row: row.version)}
    found = [Version(row, latest=row.version == newest[row.name]) for row in rows]
    if stale:
        hosts = ports.hosts.list()
        found = [each for each in found if reach(each.row, hosts).state is not Reachable.VERIFIED]
    return tuple(sorted(found, key=lambda each: (each.row.name, -each.row.version)))


def own_bundles(ports: Ports, project_id: str) -> frozenset[str]:
    """The bundles of a project's stored snapshots."""
    return frozenset(row.bundle_id for row in ports.snapshots.list(project_id))


def pages(ports: Ports, project_id: str, found: Sequence[Version]) -> list[Answer]:
    """Some of them as a caller reads them."""
    among = Surroundings(
        hosts=ports.hosts.list(),
        targets=ports.warm.list(project_id),
        resources=_resources(ports, found),
        region=ports.region,
    )
    return [snapshot_page(row, latest=latest, among=among) for row, latest in found]


def _resources(ports: Ports, found: Sequence[Version]) -> tuple[Resource, ...]:
    """Those of one bundle, or of all: one question either way."""
    if len(found) == 1:
        return ports.resources.of_bundle(found[0].row.bundle_id)
    return ports.resources.living(ResourceKind.SNAPSHOT)
