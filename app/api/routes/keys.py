from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from app.api.context import Calling, Ctx, Project
from app.api.guard import Guarded, needs
from app.api.idempotency import Idempotent
from app.api.paging import Cursor, Limit, page
from app.api.schemas.access import Key, KeyBody, Keys, NewKey
from app.api.schemas.base import Id
from app.domain.account import Scope
from app.flow import keys

router = APIRouter(route_class=Guarded, prefix="/v1/keys", tags=["keys"])

KeyId = Annotated[Id, Path()]


@router.get("", response_model=Keys)
@needs(Scope.ADMIN)
async def list_keys(
    context: Ctx, project_id: Project, limit: Limit = 100, cursor: Cursor = None
) -> dict[str, object]:
    """The keys of the project, in the order in which they were made, without their secrets."""
    rows = await context.run(context.ports.keys.list, project_id)
    found, next_cursor = page(rows, limit, cursor)
    return {"keys": [key.as_dict() for key in found], "next_cursor": next_cursor}


@router.post("", response_model=NewKey, status_code=201)
@needs(Scope.ADMIN, makes="key_id")
async def create_key(
    context: Ctx, caller: Calling, token: Idempotent, body: KeyBody
) -> dict[str, object]:
    """Make a key. Its secret is in this answer and in no other; it has no scope that the caller's key lacks, and ends
    no later.
    """
    return await context.run(
        keys.create, context.ports, caller, body.name, body.given(), body.expires_s, token
    )


@router.delete("/{key_id}", response_model=Key)
@needs(Scope.ADMIN)
async def revoke_key(context: Ctx, project_id: Project, key_id: KeyId) -> dict[str, object]:
    """Let a key open nothing any more, from now on and for ever. Twice is safe. The last live key with the scope admin
    stays: the operator alone revokes that.
    """
    key = await context.run(context.ports.keys.revoke, key_id, project_id)
    return key.as_dict()
