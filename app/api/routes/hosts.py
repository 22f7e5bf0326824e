from __future__ import annotations

from fastapi import APIRouter

from app.api.context import Ctx, Project
from app.api.guard import Guarded, needs
from app.api.paging import Cursor, Limit, page
from app.api.schemas.host import Hosts
from app.domain.account import Scope
from app.domain.host_page import host_page
from app.flow.snapshots import own_bundles

router = APIRouter(route_class=Guarded, prefix="/v1/hosts", tags=["hosts"])


@router.get("", response_model=Hosts)
@needs(Scope.READ)
async def list_hosts(
    context: Ctx, project_id: Project, limit: Limit = 100, cursor: Cursor = None
) -> dict[str, object]:
    """The hosts heard of in the last day, each with its fitness. They serve every project; of what they hold, the
    caller's own is told.
    """
    rows = await context.run(context.ports.hosts.list)
    own = await context.run(own_bundles, context.ports, project_id)
    hosts, next_cursor = page(sorted(rows, key=lambda host: host.host_id), limit, cursor)
    return {"hosts": [host_page(host, own) for host in hosts], "next_cursor": next_cursor}
