from __future__ import annotations

from fastapi import APIRouter

from app.api.context import Ctx, Project
from app.api.guard import Guarded, needs
from app.api.schemas.project import Project as Answer
from app.domain.account import Scope

router = APIRouter(route_class=Guarded, tags=["project"])


@router.get("/v1/project", response_model=Answer)
@needs(Scope.READ)
async def get_project(context: Ctx, project_id: Project) -> dict[str, object]:
    """The caller's project: its limits, and what this month's runs hold of them."""
    account = await context.run(context.ports.projects.account, project_id)
    return account.as_dict()
