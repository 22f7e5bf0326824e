from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.context import Ctx, Project
from app.api.guard import Guarded, needs
from app.api.schemas.usage import Usage
from app.domain.account import Scope
from app.flow.usage import read_asked, usage

router = APIRouter(route_class=Guarded, tags=["usage"])

From = Annotated[
    str | None,
    Query(
        alias="from",
        max_length=64,
        description="A date or an instant; without it, the month's beginning.",
    ),
]
Until = Annotated[
    str | None, Query(max_length=64, description="A date or an instant; without it, now.")
]
By = Annotated[
    str,
    Query(
        max_length=64,
        description="What the rows stand for: hour, day, project, snapshot; several with commas.",
    ),
]


@router.get("/v1/usage", response_model=Usage)
@needs(Scope.READ)
async def get_usage(
    context: Ctx,
    project_id: Project,
    begin: From = None,
    until: Until = None,
    by: By = "day",
) -> dict[str, object]:
    """What the project was charged and, apart from it, its part of what the cloud is estimated to have cost."""
    asked = read_asked(begin, until, by)
    return await context.run(usage, context.ports, project_id, asked)
