"""A snapshot as people and programs read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.domain.cloud import Purpose, Resource
from app.domain.instant import instant
from app.domain.placement import Host
from app.domain.reach import reach
from app.domain.snapshot import Snapshot
from app.domain.warm import WarmTarget, standing, warm_page


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else a page of a snapshot goes by: all hosts, its project's warm targets, and what the deployment has in its
    account, in `region`.
    """

    hosts: tuple[Host, ...]
    targets: tuple[WarmTarget, ...]
    resources: tuple[Resource, ...] = ()
    region: str | None = None


def snapshot_page(row: Snapshot, *, latest: bool, among: Surroundings) -> dict[str, object]:
    """The JSON shape of the contract."""
    hosts, targets = among.hosts, among.targets
    reached = reach(row, hosts)
    shape = row.definition.shape
    return {
        "snapshot": row.ref,
        "name": row.name,
        "version": row.version,
        "latest": latest,
        "state": reached.state.value,
        "restore": reached.as_dict(),
        "image": row.definition.image,
        "shape": {
            "vcpus": shape.vcpus,
            "memory_mib": shape.memory_mib,
            "disk_gib": shape.disk_gib,
        },
        "egress": list(row.definition.egress),
        "restore_key": str(row.restore_key),
        "accelerator": row.restore_key.accelerator.value,
        "created_at": instant(row.created_ns),
        "bytes": row.size_bytes,
        "bundles": [*_in_the_cloud(row, among), *_on_hosts(row, hosts)],
        "warm": _warm(row, hosts, targets),
        "checks": row.evidence.get("checks", []),
        "provenance": row.provenance,
    }


def _in_the_cloud(row: Snapshot, among: Surroundings) -> Iterator[dict[str, object]]:
    for kept in among.resources:
        finished = kept.cloud_id is not None and kept.deadline_ns is None
        if kept.bundle_id == row.bundle_id and kept.purpose is Purpose.KEEP and finished:
            yield {
                "where": "cloud",
                "id": kept.cloud_id,
                "region": among.region,
                "bytes": kept.size_gib << 30,
                "since": None if kept.made_ns is None else instant(kept.made_ns),
                "mounted": False,
            }


def _on_hosts(row: Snapshot, hosts: tuple[Host, ...]) -> Iterator[dict[str, object]]:
    """Copies that hosts which are up have; a host tells that it has one, not since when."""
    for host in hosts:
        mounted = row.bundle_id in host.mounted
        if host.alive and (mounted or row.bundle_id in host.holds):
            yield {
                "where": "host",
                "id": host.host_id,
                "region": None,
                "bytes": row.size_bytes,
                "since": None,
                "mounted": mounted,
            }


def _warm(
    row: Snapshot, hosts: tuple[Host, ...], targets: Iterable[WarmTarget]
) -> dict[str, object] | None:
    """Of a target for its name and one for this very version, the one that wants more."""
    of_it = [each for each in targets if each.ref == row.ref]
    if not of_it:
        return None
    return warm_page(standing(max(of_it, key=lambda each: each.hosts), hosts))
