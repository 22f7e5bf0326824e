from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from app.api.context import Ctx, Project
from app.api.guard import Guarded, needs
from app.api.schemas.base import Id, Wait
from app.api.schemas.snapshot import Build
from app.api.waiting import until
from app.domain.account import Scope
from app.domain.snapshot import BuildState
from app.flow import report as read

router = APIRouter(route_class=Guarded, prefix="/v1/builds", tags=["snapshots"])

After = Annotated[int, Query(ge=0, le=2**53)]


@router.get("/{build_id}", response_model=Build)
@needs(Scope.READ)
async def get_build(
    context: Ctx, project_id: Project, build_id: Id, wait_seconds: Wait = 0, after: After = 0
) -> dict[str, Any]:
    """A build with the lines of its log after `after`, waited for; or its end."""

    async def since() -> dict[str, Any]:
        build = await context.run(read.build, context.ports, project_id, build_id)
        return {**build, "log": _after(build["log"], after)}

    return await until(context.wakes, build_id, since, _has_news, wait_seconds)


def _after(log: Any, after: int) -> list[dict[str, Any]]:
    return [line for line in log if line["n"] > after]


def _has_news(build: dict[str, Any]) -> bool:
    return bool(build["log"]) or BuildState(build["state"]).final
