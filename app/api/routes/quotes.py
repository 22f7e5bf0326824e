from __future__ import annotations

from fastapi import APIRouter

from app.api.context import Ctx, Project
from app.api.guard import Guarded, needs
from app.api.idempotency import Idempotent, remembered
from app.api.schemas.run import Quote, QuoteBody
from app.domain.account import Scope
from app.flow.quote import quote

router = APIRouter(route_class=Guarded, tags=["quotes"])


@router.post("/v1/quotes", response_model=Quote)
@needs(Scope.RUN, makes="quote_id")
async def make_quote(
    context: Ctx, project_id: Project, token: Idempotent, body: QuoteBody
) -> dict[str, object]:
    """Say what a step can cost at most. Nothing is started."""
    ports, spec = context.ports, body.to_spec()

    def act() -> dict[str, object]:
        return quote(ports, project_id, spec).as_dict()

    return await context.run(remembered, ports, project_id, token, act)
