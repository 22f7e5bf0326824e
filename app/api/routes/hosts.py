from __future__ import annotations

from fastapi import APIRouter

from app.api.context import Ctx
from app.api.paging import Cursor, Limit, page
from app.api.schemas.host import Hosts
from app.domain.host_page import host_page

router = APIRouter(prefix="/v1/hosts", tags=["hosts"])


@router.get("", response_model=Hosts)
async def list_hosts(context: Ctx, limit: Limit = 100, cursor: Cursor = None) -> dict[str, object]:
    """The hosts heard of in the last day, each with its fitness. They serve every project."""
    rows = await context.run(context.ports.hosts.list)
    hosts, next_cursor = page(sorted(rows, key=lambda host: host.host_id), limit, cursor)
    return {"hosts": [host_page(host) for host in hosts], "next_cursor": next_cursor}
