from __future__ import annotations

from fastapi import APIRouter

from app.api.context import Ctx
from app.api.paging import Cursor, Limit, page
from app.api.schemas.host import Hosts
from app.domain.money import NS_PER_SECOND
from app.domain.placement import Host

router = APIRouter(prefix="/v1/hosts", tags=["hosts"])


@router.get("", response_model=Hosts)
async def list_hosts(context: Ctx, limit: Limit = 100, cursor: Cursor = None) -> dict[str, object]:
    """The hosts heard of in the last day, each with its fitness. They serve every project."""
    rows = await context.run(context.ports.hosts.list)
    hosts, next_cursor = page(sorted(rows, key=lambda host: host.host_id), limit, cursor)
    return {"hosts": [_host(host) for host in hosts], "next_cursor": next_cursor}


def _host(host: Host) -> dict[str, object]:
    seen = host.fingerprint
    return {
        "host_id": host.host_id,
        "state": _state(host),
        "accelerator": seen.accelerator.value,
        "accelerator_reason": seen.accelerator_reason,
        "cpu_model": seen.cpu_model,
        "vcpus": seen.vcpus,
        "memory_mib": seen.memory_mib,
        "disk_gib": seen.disk_gib,
        "slots": host.slots,
        "slots_free": host.free_slots,
        "restore_keys": [str(key) for key in seen.restore_keys],
        "mounted": list(host.mounted),
        "missing": list(seen.missing),
        "heartbeat_age_seconds": round(host.heartbeat_age_ns / NS_PER_SECOND, 3),
    }


def _state(host: Host) -> str:
    if not host.alive:
        return "lost"
    return "draining" if host.draining else "up"
