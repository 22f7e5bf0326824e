from __future__ import annotations

from fastapi import APIRouter

from app.api.context import Ctx, Project
from app.api.schemas.project import Project as Answer

router = APIRouter(tags=["project"])


@router.get("/v1/project", response_model=Answer)
async def get_project(context: Ctx, project_id: Project) -> dict[str, object]:
    """The caller's project: its limits, and what this month's runs hold of them."""
    account = await context.run(context.ports.projects.account, project_id)
    return account.as_dict()
