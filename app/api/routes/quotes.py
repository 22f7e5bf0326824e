from __future__ import annotations

from fastapi import APIRouter

from app.api.context import Ctx, Project
from app.api.schemas.run import Quote, QuoteBody
from app.flow.quote import quote

router = APIRouter(tags=["quotes"])


@router.post("/v1/quotes", response_model=Quote)
async def make_quote(context: Ctx, project_id: Project, body: QuoteBody) -> dict[str, object]:
    """Say what a step can cost at most. Nothing is started."""
    quoted = await context.run(quote, context.ports, project_id, body.to_spec())
    return quoted.as_dict()
