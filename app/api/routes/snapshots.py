from __future__ import annotations

from fastapi import APIRouter

from app.api.context import Context, Ctx, Project
from app.api.idempotency import Idempotent
from app.api.paging import Cursor, Limit, page
from app.api.schemas.base import SnapshotRef
from app.api.schemas.snapshot import Build, BuildBody, Deleted, Snapshot, Snapshots
from app.domain.instant import instant
from app.domain.placement import Host, serves
from app.domain.snapshot import Snapshot as SnapshotRow
from app.flow import build
from app.flow import report as read

router = APIRouter(prefix="/v1/snapshots", tags=["snapshots"])


@router.post("", response_model=Build, status_code=202)
async def start_build(
    context: Ctx, project_id: Project, token: Idempotent, body: BuildBody
) -> dict[str, object]:
    """Build and verify a snapshot; its name moves to the new version only when it is verified."""
    ports = context.ports
    started = await context.run(build.start, ports, project_id, body.to_definition(), token)
    return await context.run(read.build, ports, project_id, str(started["build_id"]))


@router.get("", response_model=Snapshots)
async def list_snapshots(
    context: Ctx, project_id: Project, limit: Limit = 100, cursor: Cursor = None
) -> dict[str, object]:
    """By name, newest version first."""
    rows, hosts = await _all(context, project_id)
    rows.sort(key=lambda row: (row.name, -row.version))
    found, next_cursor = page(rows, limit, cursor)
    return {"snapshots": [_told(row, rows, hosts) for row in found], "next_cursor": next_cursor}


@router.get("/{ref}", response_model=Snapshot)
async def get_snapshot(context: Ctx, project_id: Project, ref: SnapshotRef) -> dict[str, object]:
    """One version; of a bare name the newest."""
    row = await context.run(context.ports.snapshots.get, project_id, ref)
    rows, hosts = await _all(context, project_id)
    return _told(row, rows, hosts)


@router.delete("/{ref}", response_model=Deleted)
async def delete_snapshot(context: Ctx, project_id: Project, ref: SnapshotRef) -> dict[str, object]:
    """One version, or all of a bare name; refused while a live run needs it."""
    gone = await context.run(context.ports.snapshots.delete, project_id, ref)
    return {"deleted": [row.ref for row in gone]}


async def _all(context: Context, project_id: str) -> tuple[list[SnapshotRow], tuple[Host, ...]]:
    rows = await context.run(context.ports.snapshots.list, project_id)
    return list(rows), await context.run(context.ports.hosts.list)


def _told(row: SnapshotRow, rows: list[SnapshotRow], hosts: tuple[Host, ...]) -> dict[str, object]:
    """`stale`: no host that is up can restore it."""
    newest = max((other.version for other in rows if other.name == row.name), default=row.version)
    able = any(host.alive and serves(host, str(row.restore_key)) for host in hosts)
    shape = row.definition.shape
    return {
        "snapshot": row.ref,
        "name": row.name,
        "version": row.version,
        "latest": row.version == newest,
        "state": "verified" if able else "stale",
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
        "checks": row.evidence.get("checks", []),
        "provenance": row.provenance,
    }
