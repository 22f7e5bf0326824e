from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import StringConstraints, TypeAdapter, ValidationError

from app.api.bodies import MAX_FILE_BYTES, Bytes, spooled, streamed
from app.api.context import Context, Ctx, Project
from app.api.guard import Guarded, needs
from app.api.held import settled
from app.api.schemas.base import GuestPath, Id
from app.api.schemas.fork import Uploaded
from app.domain.account import Scope
from app.domain.run import Exec, ExecState, FileMove
from app.errors import BadRequest, Unavailable
from app.flow import hold

router = APIRouter(route_class=Guarded, prefix="/v1/forks/{fork_id}/files", tags=["held forks"])

# A guest takes about 10 MB a second; a client of these two routes waits so long.
MOVE_WAIT_S = 300.0

Mode = Annotated[str, Query(), StringConstraints(pattern=r"^[0-7]{3,4}$")]

_guest_path: TypeAdapter[str] = TypeAdapter(GuestPath)


@router.put("", response_model=Uploaded, openapi_extra={"requestBody": Bytes})
@needs(Scope.RUN)
async def upload_file(
    request: Request,
    context: Ctx,
    project_id: Project,
    fork_id: Id,
    path: str,
    mode: Mode = "0644",
) -> dict[str, object]:
    """Write a file in a held fork; parents are made."""
    guest_path, ports = _checked(path), context.ports
    await context.run(ports.runs.fork, project_id, fork_id)  # refused before its bytes are taken
    async with spooled(context, request) as body:
        sha256, size = await context.run(
            ports.blobs.put, body, expect=None, limit_bytes=MAX_FILE_BYTES
        )
    asked = await context.run(
        hold.upload, ports, project_id, fork_id, guest_path, sha256, int(mode, 8)
    )
    await _moved(context, asked)
    return {"bytes": size, "sha256": sha256}


@router.get("", response_class=StreamingResponse)
@needs(Scope.READ)
async def download_file(
    context: Ctx, project_id: Project, fork_id: Id, path: str
) -> StreamingResponse:
    """Read a file of a held fork."""
    guest_path, ports = _checked(path), context.ports
    asked = await context.run(hold.download, ports, project_id, fork_id, guest_path)
    moved = await _moved(context, asked)
    assert moved.sha256 is not None
    assert moved.size_bytes is not None
    source = await context.run(ports.blobs.open, moved.sha256)
    return streamed(context, source, moved.size_bytes)


def _checked(path: str) -> str:
    try:
        return _guest_path.validate_python(path)
    except ValidationError as invalid:
        problem = invalid.errors()[0]["msg"].removeprefix("Value error, ")
        raise BadRequest("bad_path", f"query path: {problem}") from None


async def _moved(context: Context, asked: Exec) -> FileMove:
    seen = await settled(context, asked, MOVE_WAIT_S)
    if seen.state is not ExecState.ENDED or seen.file is None:
        raise Unavailable("unavailable", f"the file is not there after {MOVE_WAIT_S:.0f} s")
    return seen.file
