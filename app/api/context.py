"""What every route has at hand: the ports, the wake-ups, threads for calls that block, and who calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

from app.api.lately import Lately
from app.api.ready import Readiness
from app.api.watching import Watchers
from app.domain.account import Caller
from app.errors import BadRequest
from app.nearest import not_known
from app.ports import Ports, Wakes

# A report of 5,000 forks takes some hundred MiB while it is made.
REPORTS_AT_ONCE = 2
# A key that can change nothing must not be able to fill the audit log either.
REFUSALS_S = 60.0

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """`spool` is a directory on a disk, where uploads wait until they are whole; `reports` are being made,
    `refusals` for want of a scope were noted in the audit log."""

    ports: Ports
    wakes: Wakes
    spool: Path
    threads: CapacityLimiter
    readiness: Readiness
    watchers: Watchers
    reports: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(REPORTS_AT_ONCE))
    refusals: Lately = field(default_factory=lambda: Lately(REFUSALS_S))

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A call that may block (a database, a disk), on a thread of the sized pool."""
        return await to_thread.run_sync(partial(call, *args, **kwargs), limiter=self.threads)


def context_of(request: Request) -> Context:
    return cast("Context", request.app.state.context)


def caller_of(request: Request) -> Caller:
    """Who calls, as `Authenticate` found out."""
    return cast("Caller", request.state.caller)


def _project(request: Request) -> str:
    return caller_of(request).project_id


Ctx = Annotated[Context, Depends(context_of)]
Project = Annotated[str, Depends(_project)]
Calling = Annotated[Caller, Depends(caller_of)]


def refuse_unknown_query(request: Request) -> None:
    """A query parameter that a route does not know is refused like an unknown field of a body."""
    known = {param.alias for param in request.scope["route"].dependant.query_params}
    unknown = sorted(request.query_params.keys() - known)
    if not unknown:
        return
    fields = [
        {"field": f"query {name[:100]}", "problem": not_known(name, known)} for name in unknown[:20]
    ]
    message = "; ".join(f"{field['field']}: {field['problem']}" for field in fields)
    raise BadRequest("unknown_field", message, fields=fields)
