from __future__ import annotations

import io
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from app.api.bodies import streamed
from app.api.context import Context, Ctx, Project
from app.api.guard import Guarded, needs
from app.api.held import row_id, settled
from app.api.schemas.base import Id
from app.api.schemas.fork import Console
from app.domain.account import Scope
from app.domain.run import Exec, ExecState
from app.errors import Conflict, NotYet, Unavailable
from app.flow import debug

router = APIRouter(route_class=Guarded, prefix="/v1/forks/{fork_id}", tags=["debugging"])

# A host answers at once, or its worker is away.
LOOK_WAIT_S = 15.0

Start = Annotated[int, Query(ge=0, le=2**31)]


@router.get("/logs", response_class=StreamingResponse)
@needs(Scope.READ)
async def get_logs(
    context: Ctx,
    project_id: Project,
    fork_id: Id,
    exec_id: Id | None = None,
    stream: Literal["stdout", "stderr"] = "stdout",
    start: Start = 0,
) -> StreamingResponse:
    """All that is kept of a command's output, from byte `start`; of a command that runs, what there is so far (at most
    1 MiB of it; `Promigence-Next` says where the next part begins). Without `exec_id`: of the command that the fork is
    about; `task`, `test` and `grade` name the newest of these.
    """
    names = () if exec_id is None else (exec_id, row_id(fork_id, exec_id))
    asked = await context.run(debug.command, context.ports, project_id, fork_id, names)
    if asked.state is ExecState.QUEUED:
        return _told(context, asked, b"", start)
    if asked.state is ExecState.RUNNING and asked.result is None:
        seen = await _looked(context, asked, stream, start)
        if seen is not None:
            return _told(context, asked, *seen)
        asked = await context.run(
            context.ports.execs.get, project_id, asked.fork_id, asked.exec_id
        )  # it ended, or its machine did, while it was looked at
    output = await context.run(debug.output, context.ports, asked, stream, start)
    answer = streamed(context, output.source, output.size_bytes)
    answer.headers.update(_headers(asked, start + output.size_bytes))
    return answer


@router.get("/console", response_model=Console)
@needs(Scope.READ)
async def get_console(context: Ctx, project_id: Project, fork_id: Id) -> dict[str, object]:
    """The last 4 KiB of the guest's console: of the machine that lives, else as it was kept when the last one ended."""
    ports = context.ports
    try:
        asked = await context.run(debug.look_at_console, ports, project_id, fork_id)
        seen = await settled(context, asked, LOOK_WAIT_S)
    except (Conflict, NotYet) as none:
        if none.code == "too_many_execs":
            raise
        # There is no machine now, or it has just ended.
        attempt_id, text = await context.run(debug.kept_console, ports, project_id, fork_id)
        return _console(fork_id, attempt_id, text, live=False)
    if seen.result is None:
        raise _silent()
    return _console(fork_id, seen.attempt_id, seen.result.stdout, live=True)


async def _looked(
    context: Context, asked: Exec, stream: debug.Stream, start: int
) -> tuple[bytes, int] | None:
    """What a running command printed from `start`, and where the next part begins; None if it runs no more."""
    try:
        look = await context.run(debug.look_at_output, context.ports, asked, stream, start)
        seen = await settled(context, look, LOOK_WAIT_S)
    except Conflict:
        return None
    if seen.result is None:
        raise _silent()
    return seen.result.stdout.encode(), seen.result.read_to


def _told(context: Context, asked: Exec, part: bytes, then: int) -> StreamingResponse:
    answer = streamed(context, io.BytesIO(part), len(part))
    answer.headers.update(_headers(asked, then))
    return answer


def _headers(asked: Exec, then: int) -> dict[str, str]:
    cut = asked.result is not None and asked.result.cut
    return {
        "Promigence-Exec-Id": asked.name or asked.exec_id,
        "Promigence-Purpose": asked.purpose.value,
        "Promigence-State": asked.state.value,
        "Promigence-Truncated": "true" if cut else "false",
        "Promigence-Next": str(then),
    }


def _console(fork_id: str, attempt_id: str, text: str, *, live: bool) -> dict[str, object]:
    return {"fork_id": fork_id, "attempt_id": attempt_id, "live": live, "text": text}


def _silent() -> Unavailable:
    return Unavailable("unavailable", f"the fork's host did not answer within {LOOK_WAIT_S:.0f} s")
