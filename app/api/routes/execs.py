from __future__ import annotations

import hashlib
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from app.api.context import Context, Ctx, Project
from app.api.guard import Guarded, OfEffect, needs
from app.api.held import row_id, settled
from app.api.idempotency import Idempotent
from app.api.schemas.base import MAX_WAIT_S, Id, Wait
from app.api.schemas.command import HeldCommand
from app.api.schemas.fork import ExecPending, ExecResult
from app.domain.account import Scope
from app.domain.money import NS_PER_SECOND
from app.domain.run import Exec, ExecState
from app.errors import Conflict, NotFound
from app.flow import hold
from app.flow._once import Token
from app.ids import new_id

router = APIRouter(route_class=Guarded, prefix="/v1/forks/{fork_id}/execs", tags=["held forks"])

PENDING: dict[int | str, dict[str, Any]] = {202: {"model": ExecPending}}


@router.post("", response_model=ExecResult, responses=PENDING)
@needs(Scope.RUN, with_effect=True)
async def run_command(
    context: Ctx,
    project_id: Project,
    fork_id: Id,
    token: Idempotent,
    entry: OfEffect,
    body: HeldCommand,
) -> dict[str, object] | JSONResponse:
    """Run a command in a held fork; waits for its end as long as one answer may take."""
    exec_id = body.exec_id or _id_of(token)
    try:
        asked = await context.run(
            hold.exec,
            context.ports,
            project_id,
            fork_id,
            body.to_spec(),
            row_id(fork_id, exec_id),
            exec_id,
            entry,
        )
    except Conflict as conflict:
        raise _told(conflict, exec_id, body) from conflict
    return await _answer(context, asked, exec_id, MAX_WAIT_S)


@router.get("/{exec_id}", response_model=ExecResult, responses=PENDING)
@needs(Scope.READ)
async def get_command(
    context: Ctx, project_id: Project, fork_id: Id, exec_id: Id, wait_seconds: Wait = 0
) -> dict[str, object] | JSONResponse:
    """A command's end, waited for."""
    row = row_id(fork_id, exec_id)
    try:
        asked = await context.run(context.ports.execs.get, project_id, fork_id, row)
    except NotFound:
        # By the id that the call came with, not by the row's.
        raise NotFound("unknown_exec", f"fork {fork_id} has no command {exec_id}") from None
    return await _answer(context, asked, exec_id, wait_seconds)


def _id_of(token: Token | None) -> str:
    """A repeated call finds its first command by an id that follows from its key."""
    if token is None:
        return new_id("exec")
    return f"exec_{hashlib.sha256(token.key.encode()).hexdigest()[:32]}"


def _told(conflict: Conflict, exec_id: str, body: HeldCommand) -> Conflict:
    """The row has an id of ours; the caller reads of the id, or the key, that the call came with."""
    if conflict.code != "exec_id_taken":
        return conflict
    if body.exec_id is None:
        return Conflict(
            "idempotency_mismatch", "this idempotency key was used before with another command"
        )
    return Conflict("exec_id_taken", f"exec_id {exec_id!r} stands for another command of this fork")


async def _answer(
    context: Context, asked: Exec, exec_id: str, wait_s: float
) -> dict[str, object] | JSONResponse:
    seen = await settled(context, asked, wait_s)
    result = seen.result
    if seen.state is not ExecState.ENDED or result is None:
        return JSONResponse({"exec_id": exec_id, "state": seen.state.value}, 202)
    return {
        "exec_id": exec_id,
        "exit_code": result.exit_code,
        "timed_out": result.timed_out,
        "signal": result.signal,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "truncated": result.truncated,
        "seconds": round(result.duration_ns / NS_PER_SECOND, 6),
    }
