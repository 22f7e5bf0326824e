"""The steps of a run's events: a stream is opened like any call; what comes in it is read by the driver."""

from __future__ import annotations

import json
from typing import Any, cast

from promigence._protocol import Answer, Request, path_of
from promigence._steps.calls import Steps, Terms, call
from promigence.errors import BadAnswer
from promigence.types import Event


def opened(run_id: str, after: int, terms: Terms) -> Steps[Answer]:
    """The stream of what happens after that number; none (204) when nothing more will. Raises BadAnswer too."""
    path = path_of("runs", run_id, "events")
    answer = yield from call(Request("GET", path, stream_after=after), terms)
    kind = answer.headers.get("content-type", "")
    if answer.stream is not None and not kind.startswith("text/event-stream"):
        answer.stream.close()
        raise _bad(answer, f"it is {kind or 'of no type'}; is the base URL right?")
    return answer


def event_of(data: str, after: int, answer: Answer) -> Event | None:
    """An event of a stream; None if it was heard before. Raises BadAnswer for what is none, and for one too late."""
    event = _object(data, answer)
    missing = sorted(Event.__required_keys__ - event.keys())
    if missing:
        raise _bad(answer, f"an event without {', '.join(missing)}")
    number = event["number"]
    if not isinstance(number, int) or number > after + 1:
        raise _bad(answer, f"event {number!r} came after event {after}")
    return cast("Event", event) if number > after else None


def _object(data: str, answer: Answer) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _bad(answer, "an event that is no JSON") from error
    if not isinstance(event, dict):
        raise _bad(answer, "an event that is no object")
    return event


def _bad(answer: Answer, what: str) -> BadAnswer:
    return BadAnswer(
        f"the stream is not Promigence's: {what}",
        status=answer.status,
        request_id=answer.request_id,
    )
