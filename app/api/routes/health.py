from __future__ import annotations

from fastapi import APIRouter, Response

from app.api.context import Ctx
from app.api.schemas.host import Alive, Ready

router = APIRouter(tags=["health"])


@router.get("/healthz", response_model=Alive)
async def healthz() -> dict[str, object]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", response_model=Ready, responses={503: {"model": Ready}})
async def readyz(context: Ctx, response: Response) -> dict[str, object]:
    """Whether each part answers a real probe now. Open to all, so it says no more."""
    parts = await context.readiness.parts()
    ready = all(parts.values())
    response.status_code = 200 if ready else 503
    return {"ready": ready, "parts": [_part(*part) for part in parts.items()]}


def _part(name: str, ready: bool) -> dict[str, object]:
    return {"name": name, "ready": ready, "detail": "ok" if ready else "not ready"}
