from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.context import Ctx, Project
from app.api.guard import Guarded, needs
from app.api.idempotency import Idempotent
from app.api.paging import Cursor, Limit, page
from app.api.schemas.base import SnapshotRef
from app.api.schemas.snapshot import (
    Build,
    BuildBody,
    Deleted,
    RebuildBody,
    Snapshot,
    Snapshots,
    WarmBody,
)
from app.domain.account import Scope
from app.flow import build, snapshots
from app.flow import report as read

router = APIRouter(route_class=Guarded, prefix="/v1/snapshots", tags=["snapshots"])

Stale = Annotated[bool, Query(description="Only versions that no host which is up can restore.")]


@router.post("", response_model=Build, status_code=202)
@needs(Scope.BUILD, makes="build_id")
async def start_build(
    context: Ctx, project_id: Project, token: Idempotent, body: BuildBody
) -> dict[str, object]:
    """Build and verify a snapshot; its name moves to the new version only when it is verified."""
    ports = context.ports
    started = await context.run(build.start, ports, project_id, body.to_definition(), token)
    return await context.run(read.build, ports, project_id, str(started["build_id"]))


@router.get("", response_model=Snapshots)
@needs(Scope.READ)
async def list_snapshots(
    context: Ctx,
    project_id: Project,
    stale: Stale = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> dict[str, object]:
    """By name, newest version first."""
    ports = context.ports
    rows = await context.run(snapshots.every, ports, project_id, stale=stale)
    found, next_cursor = page(rows, limit, cursor)
    told = await context.run(snapshots.pages, ports, project_id, found)
    return {"snapshots": told, "next_cursor": next_cursor}


@router.get("/{ref}", response_model=Snapshot)
@needs(Scope.READ)
async def get_snapshot(context: Ctx, project_id: Project, ref: SnapshotRef) -> dict[str, object]:
    """One version; of a bare name the newest."""
    return await context.run(snapshots.one, context.ports, project_id, ref)


@router.delete("/{ref}", response_model=Deleted)
@needs(Scope.ADMIN)
async def delete_snapshot(context: Ctx, project_id: Project, ref: SnapshotRef) -> dict[str, object]:
    """One version, or all of a bare name; refused while a live run needs it."""
    gone = await context.run(context.ports.snapshots.delete, project_id, ref)
    return {"deleted": [row.ref for row in gone]}


@router.post("/{ref}/rebuild", response_model=Build, status_code=202)
@needs(Scope.BUILD, makes="build_id")
async def rebuild_snapshot(
    context: Ctx,
    project_id: Project,
    token: Idempotent,
    ref: SnapshotRef,
    body: RebuildBody | None = None,
) -> dict[str, object]:
    """Build and verify the definition that a version was built of anew; its name moves once that is verified."""
    ports, cap = context.ports, body.cap_micros if body is not None else None
    started = await context.run(build.rebuild, ports, project_id, ref, cap, token)
    return await context.run(read.build, ports, project_id, str(started["build_id"]))


@router.put("/{ref}/warm", response_model=Snapshot)
@needs(Scope.BUILD)
async def keep_warm(
    context: Ctx, project_id: Project, ref: SnapshotRef, body: WarmBody
) -> dict[str, object]:
    """Keep it mounted on at least so many hosts: a bare name's newest version, whichever that is, or one version."""
    await context.run(context.ports.warm.set, project_id, ref, body.hosts)
    return await context.run(snapshots.one, context.ports, project_id, ref)


@router.delete("/{ref}/warm", response_model=Snapshot)
@needs(Scope.BUILD)
async def keep_warm_no_more(
    context: Ctx, project_id: Project, ref: SnapshotRef
) -> dict[str, object]:
    """End that. What is mounted stays until its room is needed."""
    await context.run(context.ports.warm.set, project_id, ref, 0)
    return await context.run(snapshots.one, context.ports, project_id, ref)
