"""The sync driver of a stream of events: opens it, reads it, and opens it again where it broke, until the run ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from promigence._engine import Engine
from promigence._protocol import Answer
from promigence._retry import Retries
from promigence._sse import Frames, TooLongError
from promigence._steps import events
from promigence.errors import BadAnswer, ServerUnreachable
from promigence.types import Event

# A stream that ends sooner, and without an event, is a fault; one that lasted has only to be opened again.
LASTED_SECONDS = 5.0
MOST_FAULTS = 8


def follow(engine: Engine, run_id: str, after: int) -> Iterator[Event]:
    """Every event of a run after that number, once and in order. Raises what the call that opens a stream raises,
    BadAnswer, and ServerUnreachable after `MOST_FAULTS` streams in a row that broke at once.
    """
    retries, faults = Retries(), 0
    while True:
        answer = engine.run(events.opened(run_id, after, engine.terms()))
        begun, before = engine.pace.clock(), after
        for event in _heard(answer, after):
            after = event["number"]
            yield event
            if event["kind"] == "run_ended":
                return
        if answer.stream is None:
            return
        lasted = after > before or engine.pace.clock() - begun > LASTED_SECONDS
        faults = 0 if lasted else faults + 1
        if faults > MOST_FAULTS:
            raise ServerUnreachable(f"the stream of run {run_id} breaks off again and again")
        engine.pace.sleep(retries.pause_seconds(max(1, faults), None, engine.pace.chance()))


def _heard(answer: Answer, after: int) -> Iterator[Event]:
    """The events of one stream until it ends or breaks."""
    if answer.stream is None:
        return
    frames = Frames()
    with closing(answer.stream):
        for chunk in answer.stream:
            for data in _fed(frames, chunk, answer):
                event = events.event_of(data, after, answer)
                if event is not None:
                    after = event["number"]
                    yield event


def _fed(frames: Frames, chunk: bytes, answer: Answer) -> Iterator[str]:
    try:
        yield from frames.feed(chunk)
    except TooLongError as error:
        raise BadAnswer(
            "the stream is not Promigence's: a frame without an end",
            status=answer.status,
            request_id=answer.request_id,
        ) from error
