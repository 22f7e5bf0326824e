from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import StringConstraints

from app.api.context import Ctx, Project
from app.api.guard import Guarded, needs
from app.api.paging import Cursor, Limit
from app.api.schemas.access import AuditLog
from app.domain.account import Scope
from app.domain.audit import Place, Sought, place_of
from app.domain.instant import read_instant
from app.errors import BadRequest

router = APIRouter(route_class=Guarded, tags=["audit"])

Actor = Annotated[
    str | None, Query(description="A key's id."), StringConstraints(pattern=r"^[ -~]{1,100}$")
]
Action = Annotated[
    str | None,
    Query(description="As entries name it."),
    StringConstraints(pattern=r"^[a-z_.]{1,64}$"),
]
From = Annotated[
    str | None, Query(alias="from", max_length=64, description="A date or an instant.")
]
Until = Annotated[str | None, Query(max_length=64, description="A date or an instant.")]


@router.get("/v1/audit", response_model=AuditLog)
@needs(Scope.ADMIN)
async def list_audit(
    context: Ctx,
    project_id: Project,
    key: Actor = None,
    action: Action = None,
    begin: From = None,
    until: Until = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> dict[str, object]:
    """Who changed what in the project, newest first; also what operators changed of it on the server."""
    sought = Sought(key, action, _ns("from", begin), _ns("until", until))
    rows = await context.run(
        context.ports.audit.list, project_id, sought, limit + 1, _place(cursor)
    )
    more = place_of(rows[limit - 1]) if len(rows) > limit else None
    return {
        "entries": [row.as_dict() for row in rows[:limit]],
        "next_cursor": None if more is None else f"{more.at_ns}-{more.entry_id}",
    }


def _ns(name: str, told: str | None) -> int | None:
    return None if told is None else read_instant(name, told)


def _place(cursor: str | None) -> Place | None:
    if cursor is None:
        return None
    told = re.fullmatch(r"([0-9]{1,18}|[0-8][0-9]{18})-(audit_[0-9a-f]{1,32})", cursor)
    if told is None:
        raise BadRequest("bad_request", "cursor: is not one that a page gave")
    return Place(int(told[1]), told[2])
