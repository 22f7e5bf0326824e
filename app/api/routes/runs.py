from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from app.api.context import Context, Ctx, Project
from app.api.guard import Guarded, needs
from app.api.idempotency import Idempotent, remembered
from app.api.paging import Cursor, Limit, page
from app.api.rendering import in_pieces, rendered
from app.api.schemas.base import Id, Wait
from app.api.schemas.fork import Forks
from app.api.schemas.ledger import RunLedger
from app.api.schemas.run import (
    FailedAttempt,
    ForkReport,
    Report,
    Run,
    Runs,
    StartBody,
    Started,
)
from app.api.waiting import until
from app.domain.account import Scope
from app.domain.run import RunState
from app.errors import BadRequest
from app.flow import report as read
from app.flow.start import start
from app.flow.stop import cancel

REPORTS_LISTS: dict[str, type[BaseModel]] = {
    "forks": ForkReport,
    "environment_failures": FailedAttempt,
}

router = APIRouter(route_class=Guarded, prefix="/v1/runs", tags=["runs"])


@router.post("", response_model=Started, status_code=201)
@needs(Scope.RUN, makes="run_id")
async def start_run(
    context: Ctx, project_id: Project, token: Idempotent, body: StartBody
) -> dict[str, object]:
    """Start a step; it goes on by itself."""
    return await context.run(start, context.ports, project_id, body.to_spec(), body.quote_id, token)


@router.get("", response_model=Runs)
@needs(Scope.READ)
async def list_runs(
    context: Ctx,
    project_id: Project,
    label: Annotated[list[str], Query(max_length=32)] = [],  # noqa: B006 - FastAPI copies it
    limit: Limit = 100,
    cursor: Cursor = None,
) -> dict[str, object]:
    """Newest first; all labels must match."""
    return await context.run(
        read.list_runs, context.ports, project_id, _labels(label), limit, cursor
    )


@router.get("/{run_id}", response_model=Run)
@needs(Scope.READ)
async def get_run(
    context: Ctx, project_id: Project, run_id: Id, wait_seconds: Wait = 0
) -> dict[str, object]:
    """A run without its forks; with `wait_seconds` it waits for the run to be final."""
    await _final(context, project_id, run_id, wait_seconds)
    return await context.run(read.summary, context.ports, project_id, run_id)


@router.get("/{run_id}/report", response_model=Report, response_model_exclude_unset=True)
@needs(Scope.READ)
async def get_report(
    context: Ctx, project_id: Project, run_id: Id, forks: bool = True, wait_seconds: Wait = 0
) -> StreamingResponse:
    """What came of a run, at any time; with `wait_seconds` it waits for the run to be final."""
    await _final(context, project_id, run_id, wait_seconds)

    def report() -> Sequence[bytes]:
        told = read.report(context.ports, project_id, run_id, forks=forks)
        return rendered(Report, told, REPORTS_LISTS)

    async with context.reports:
        return in_pieces(await context.run(report))


@router.get("/{run_id}/ledger", response_model=RunLedger)
@needs(Scope.READ)
async def get_ledger(context: Ctx, project_id: Project, run_id: Id) -> dict[str, object]:
    """Every move of a run's money, and every machine's life with what it cost."""
    return await context.run(read.ledger, context.ports, project_id, run_id)


@router.post("/{run_id}/cancel", response_model=Run)
@needs(Scope.RUN)
async def cancel_run(
    context: Ctx, project_id: Project, token: Idempotent, run_id: Id
) -> dict[str, object]:
    """Ask every fork to stop. A run that is final stays as it is."""
    ports = context.ports

    def act() -> dict[str, object]:
        cancel(ports, project_id, run_id)
        return read.summary(ports, project_id, run_id)

    return await context.run(remembered, ports, project_id, token, act)


@router.get("/{run_id}/forks", response_model=Forks)
@needs(Scope.READ)
async def list_forks(
    context: Ctx, project_id: Project, run_id: Id, limit: Limit = 100, cursor: Cursor = None
) -> dict[str, object]:
    """By index, each with its state."""
    forks = await context.run(read.forks, context.ports, project_id, run_id)
    found, next_cursor = page(forks, limit, cursor)
    return {"forks": found, "next_cursor": next_cursor}


async def _final(context: Context, project_id: str, run_id: str, wait_s: float) -> None:
    """Wait until the run is final, by its row alone: a report of thousands of forks is read once, at the end."""
    if wait_s == 0:
        return

    async def row() -> RunState:
        return (await context.run(context.ports.runs.get, project_id, run_id)).state

    await until(context.wakes, run_id, row, lambda state: state is RunState.ENDED, wait_s)


def _labels(pairs: list[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or "\0" in pair:
            raise BadRequest("bad_request", "query label: is not of the form name=value")
        if labels.setdefault(name, value) != value:
            raise BadRequest("bad_request", f"query label: {name!r} is asked for twice")
    return labels
