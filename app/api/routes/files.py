from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from app.api.bodies import MAX_FILE_BYTES, Bytes, spooled
from app.api.context import Ctx
from app.api.schemas.base import Sha256
from app.api.schemas.snapshot import FileKept
from app.errors import NotFound

router = APIRouter(prefix="/v1/files", tags=["files"])

Hash = Annotated[Sha256, Path()]


@router.head("/{sha256}", response_class=Response)
async def has_file(context: Ctx, sha256: Hash) -> Response:
    """Whether these bytes are here. Files are named by content alone: who knows a hash names the same file."""
    if not await context.run(context.ports.blobs.has, sha256):
        raise NotFound("not_found", f"no file {sha256} was uploaded")
    return Response()


@router.put(
    "/{sha256}",
    response_model=FileKept,
    status_code=201,
    responses={200: {"model": FileKept, "description": "It was there"}},
    openapi_extra={"requestBody": Bytes},
)
async def keep_file(
    request: Request, response: Response, context: Ctx, sha256: Hash
) -> dict[str, object]:
    """Keep bytes under their hash; 200 when they were there."""
    was_there = await context.run(context.ports.blobs.has, sha256)
    async with spooled(context, request) as body:
        _, size = await context.run(
            context.ports.blobs.put, body, expect=sha256, limit_bytes=MAX_FILE_BYTES
        )
    response.status_code = 200 if was_there else 201
    return {"sha256": sha256, "bytes": size}
