"""What a route is opened by, and what it leaves in the audit log.

Every route says it in one place, `@needs(Scope.RUN)`, and none can be made without. It is asked in the route's own
handler: FastAPI reads a body before it asks any dependency, and a key without the scope is refused before that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from app.api.context import caller_of, context_of
from app.domain.account import Scope
from app.domain.audit import ACCEPTED, Entry, named
from app.errors import Forbidden, PromigenceError
from app.ids import new_id

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
Handler = Callable[[Request], Any]

READS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Need:
    """`makes` is the field of the answer that names what was made, where the path does not.

    `with_effect`: the entry is written in the transaction of the effect itself, by whoever the route calls.
    """

    scope: Scope
    makes: str | None = None
    with_effect: bool = False


def needs(
    scope: Scope, *, makes: str | None = None, with_effect: bool = False
) -> Callable[[Endpoint], Endpoint]:
    """Declare what opens a route; stands between the route and its function."""

    def declared(endpoint: Endpoint) -> Endpoint:
        vars(endpoint)["need"] = Need(scope, makes, with_effect)
        return endpoint

    return declared


def need_of(endpoint: Callable[..., Any]) -> Need:
    """Raises TypeError for a function that declares none."""
    found = getattr(endpoint, "need", None)
    if not isinstance(found, Need):
        raise TypeError(f"{endpoint.__name__} says no scope: put @needs(Scope...) on it")
    return found


class Guarded(APIRoute):
    """A route that asks for its scope before it reads anything, and whose changes are in the audit log."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        opened_by = {"security": [{"key": [need_of(endpoint).scope.value]}]}
        more["openapi_extra"] = {**(more.get("openapi_extra") or {}), **opened_by}
        super().__init__(path, endpoint, **more)

    def get_route_handler(self) -> Handler:
        need, handle = need_of(self.endpoint), super().get_route_handler()
        if (self.methods or set()) <= READS:
            return _reading(need, handle)
        return (_with_effect if need.with_effect else _changing)(self.name, need, handle)


def _reading(need: Need, handle: Handler) -> Handler:
    async def guarded(request: Request) -> Response:
        caller_of(request).need(need.scope)
        return cast("Response", await handle(request))

    return guarded


def _changing(action: str, need: Need, handle: Handler) -> Handler:
    """The entry first; `Trail` notes what came of it."""

    async def guarded(request: Request) -> Response:
        context, entry = context_of(request), _entry(request, action)
        await _ask(request, need.scope, entry)
        await context.run(context.ports.audit.begin, entry)
        request.state.entry = entry
        response = cast("Response", await handle(request))
        if need.makes is not None:
            request.state.entry = replace(
                entry, target=str(json.loads(bytes(response.body))[need.makes])
            )
        return response

    return guarded


def _with_effect(action: str, need: Need, handle: Handler) -> Handler:
    """Only a refusal is written from here: a change is in the log when it is in the rows. One that will do later is
    asked for again, often, and is none.
    """

    async def guarded(request: Request) -> Response:
        context, entry = context_of(request), _entry(request, action)
        await _ask(request, need.scope, entry)
        request.state.entry_of_effect = replace(entry, status=ACCEPTED)
        try:
            return cast("Response", await handle(request))
        except PromigenceError as refused:
            if not refused.retryable:
                entry = replace(entry, status=refused.status)
                await context.run(context.ports.audit.begin, entry)
            raise

    return guarded


async def _ask(request: Request, scope: Scope, entry: Entry) -> None:
    """Raises Forbidden(missing_scope), which is in the log once a minute for each key and action."""
    try:
        caller_of(request).need(scope)
    except Forbidden as refused:
        context = context_of(request)
        if context.refusals.is_new((entry.actor, entry.action), time.monotonic()):
            refusal = replace(entry, status=refused.status)
            await context.run(context.ports.audit.begin, refusal)
        raise


def _entry(request: Request, action: str) -> Entry:
    caller = caller_of(request)
    path = [str(value) for value in request.path_params.values()]
    return Entry(
        entry_id=new_id("audit"),
        actor=caller.key_id,
        action=action,
        project_id=caller.project_id,
        target=named("/".join(path)) if path else None,
        request_id=request.state.request_id,
        # A balancer's word for it, where the server believes one: of any length.
        client=None if request.client is None else named(request.client.host),
    )


def _entry_of_effect(request: Request) -> Entry:
    return cast("Entry", request.state.entry_of_effect)


OfEffect = Annotated[Entry, Depends(_entry_of_effect)]
