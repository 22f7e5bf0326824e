from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response

from app.api.context import Calling, Ctx
from app.api.guard import Guarded, needs
from app.api.paging import Limit
from app.api.schemas.base import Id
from app.api.schemas.event import Events
from app.api.watching import PAGE, EventStream, Page
from app.domain.account import Scope
from app.errors import BadRequest
from app.flow.events import events
from app.ports import Ports

router = APIRouter(route_class=Guarded, prefix="/v1/runs/{run_id}/events", tags=["runs"])

MOST_AFTER = 2**31 - 1

After = Annotated[int, Query(ge=0, le=MOST_AFTER)]
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A stream of `Event`s (id: its number, event: its kind, data: its JSON), or a page of them.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    204: {"description": "The run has ended, and nothing happened after that number."},
}


@router.get("", response_model=Events, responses=STREAMED)
@needs(Scope.READ)
async def get_events(
    request: Request,
    context: Ctx,
    caller: Calling,
    run_id: Id,
    after: After = 0,
    limit: Limit = 100,
    format: Literal["json", "sse"] | None = None,  # noqa: A002 - the word of the wire
    last_event_id: Annotated[str | None, Header()] = None,
) -> Page | Response:
    """What happens in a run: a stream that ends with the run, or, for `application/json`, a page.

    A stream that broke is gone on with by `Last-Event-ID`, which stands above `after`.
    """
    read = partial(_read, context.ports, caller.project_id, run_id)
    if _wants_json(request, format):
        return await context.run(read, after, limit)
    page = await context.watchers.page(read, _last(last_event_id, after), caller.key_id)
    if page["final"] and not page["events"]:
        return Response(status_code=204)
    return EventStream(context.watchers.frames(run_id, read, page, caller.key_id))


def _read(ports: Ports, project_id: str, run_id: str, after: int, limit: int = PAGE) -> Page:
    return events(ports, project_id, run_id, after, limit)


def _wants_json(request: Request, asked: str | None) -> bool:
    if asked is not None:
        return asked == "json"
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/event-stream" not in accepted


def _last(told: str | None, after: int) -> int:
    if told is None:
        return after
    if not (told.isascii() and told.isdecimal() and len(told) <= 10 and int(told) <= MOST_AFTER):
        raise BadRequest("bad_request", "header Last-Event-ID: is not the number of an event")
    return int(told)
