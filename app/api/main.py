"""The API as one application: the routes, the one error shape, and what is around every request."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from anyio import CapacityLimiter
from fastapi import Depends, FastAPI

from app.api import errors
from app.api.context import Context, refuse_unknown_query
from app.api.limits import Allowances, Throttle, WrongKeys
from app.api.middleware import Authenticate, BodyLimit, Envelope
from app.api.ready import Probe, Readiness
from app.api.routes import (
    audit,
    builds,
    events,
    execs,
    files,
    fork_files,
    fork_looks,
    forks,
    health,
    hosts,
    keys,
    project,
    quotes,
    runs,
    snapshots,
    usage,
)
from app.api.schemas.error import ErrorAnswer
from app.api.trail import Trail
from app.api.watching import Watchers
from app.domain.account import Caller
from app.domain.audit import Entry
from app.errors import Unavailable
from app.ports import Ports, Wakes

VERSION = "1"
# Calls that block at once: about what SQLite or a connection pool serves; the rest waits without a thread.
THREADS = 32
GENEROUS = Allowances()

ROUTERS = (
    quotes.router,
    runs.router,
    events.router,
    forks.router,
    execs.router,
    fork_files.router,
    fork_looks.router,
    files.router,
    snapshots.router,
    builds.router,
    usage.router,
    hosts.router,
    project.router,
    keys.router,
    audit.router,
    health.router,
)


def create_api(
    ports: Ports,
    wakes: Wakes,
    *,
    spool: Path,
    probes: Mapping[str, Probe] | None = None,
    threads: int = THREADS,
    allowances: Allowances = GENEROUS,
) -> FastAPI:
    """The API over these ports.

    `spool` is a directory on a disk (not in memory) for uploads on their way; `probes` are asked by `/readyz`, beside
    whether a host is up; `allowances` are what a key has.
    """
    asked = {**(probes or {}), "hosts": lambda: _need_a_host(ports)}
    context = Context(
        ports,
        wakes,
        spool,
        CapacityLimiter(threads),
        Readiness(asked),
        Watchers(wakes, most_of_key=allowances.streams),
    )

    async def caller_of(secret: str) -> Caller:
        return await context.run(ports.keys.caller_of, secret)

    async def end(entry: Entry) -> None:
        await context.run(ports.audit.end, entry)

    api = routes()
    api.state.context = context
    # The last one added is the outermost.
    api.add_middleware(BodyLimit)
    api.add_middleware(Trail, end=end)
    api.add_middleware(Throttle, allowances=allowances)
    api.add_middleware(
        Authenticate, caller_of=caller_of, wrong_keys=WrongKeys(allowances.wrong_keys)
    )
    api.add_middleware(Envelope)
    return api


def routes() -> FastAPI:
    """The routes without ports: what the OpenAPI document is made from. It is not served; it is in the repository."""
    api = FastAPI(
        title="Promigence",
        version=VERSION,
        openapi_url=None,
        redirect_slashes=False,
        dependencies=[Depends(refuse_unknown_query)],
        responses={"4XX": {"model": ErrorAnswer}, "5XX": {"model": ErrorAnswer}},
    )
    errors.install(api)
    for router in ROUTERS:
        api.include_router(router)
    return api


def _need_a_host(ports: Ports) -> None:
    if not any(host.alive for host in ports.hosts.list()):
        raise Unavailable("no_host", "no host is up")
