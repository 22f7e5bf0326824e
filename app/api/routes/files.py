from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from app.api.bodies import MAX_FILE_BYTES, Bytes, spooled
from app.api.context import Ctx, Project
from app.api.guard import Guarded, needs
from app.api.schemas.base import Sha256
from app.api.schemas.snapshot import FileKept
from app.domain.account import Scope
from app.errors import NotFound
from app.flow.build import is_here

router = APIRouter(route_class=Guarded, prefix="/v1/files", tags=["files"])

Hash = Annotated[Sha256, Path()]


@router.head("/{sha256}", response_class=Response)
@needs(Scope.BUILD)
async def has_file(context: Ctx, project_id: Project, sha256: Hash) -> Response:
    """Whether the caller's project has sent these bytes, and they are kept. What others have sent is not told."""
    if not await context.run(is_here, context.ports, project_id, sha256):
        raise NotFound("not_found", f"no file {sha256} was uploaded")
    return Response()


@router.put(
    "/{sha256}",
    response_model=FileKept,
    status_code=201,
    responses={200: {"model": FileKept, "description": "It was there"}},
    openapi_extra={"requestBody": Bytes},
)
@needs(Scope.BUILD)
async def keep_file(
    request: Request, response: Response, context: Ctx, project_id: Project, sha256: Hash
) -> dict[str, object]:
    """Keep bytes under their hash; 200 when the project had sent them before."""
    was_there = await context.run(is_here, context.ports, project_id, sha256)
    async with spooled(context, request) as body:
        _, size = await context.run(
            context.ports.blobs.put, body, expect=sha256, limit_bytes=MAX_FILE_BYTES
        )
    await context.run(context.ports.uploads.note, project_id, sha256)
    response.status_code = 200 if was_there else 201
    return {"sha256": sha256, "bytes": size}
