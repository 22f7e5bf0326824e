"""A run's events as they happen, as server-sent events.

A stream reads the rows about twice a second, on a few threads that all streams share, and holds nothing in between:
no thread and no connection of the database. So many of them slow down each other and nobody else.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi.responses import StreamingResponse
from starlette.types import Send

from app.errors import RateLimited, Unavailable
from app.ports import Wakes

# How many events a stream reads at once.
PAGE = 200
MOST_STREAMS = 1000
THREADS = 4
# The end of a run wakes its streams; everything else is found by looking.
POLL_S = 0.5
# Whoever hears nothing for three times as long knows that the connection is dead.
BEAT_S = 10.0
# Then the caller comes again with its key, which may have been revoked meanwhile.
STREAM_S = 600.0
RETRY = b"retry: 1000\n\n"
BEAT = b": nothing new\n\n"

# What is read after a number: `events`, `next` and `final`.
Page = dict[str, Any]
Read = Callable[[int], Page]


@dataclass(slots=True)
class Watchers:
    """The streams of this process; `of_key` says whose they are."""

    wakes: Wakes
    most: int = MOST_STREAMS
    most_of_key: int = MOST_STREAMS
    of_key: Counter[str] = field(default_factory=Counter)
    threads: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(THREADS))

    @property
    def streams(self) -> int:
        """How many are open."""
        return self.of_key.total()

    async def page(self, read: Read, after: int, key_id: str) -> Page:
        """The first page of a stream. Raises Unavailable(too_many_streams), RateLimited, and what `read` raises."""
        if self.streams >= self.most:
            raise Unavailable("too_many_streams", f"{self.most} streams are open; try again")
        if self.of_key[key_id] >= self.most_of_key:
            open_at_once = f"a key has {self.most_of_key} streams open at once; close some"
            raise RateLimited("rate_limited", open_at_once, retry_after_seconds=1)
        # One that is being opened is one of them: else all that come at once would find room.
        with self._counted(key_id):
            return await to_thread.run_sync(read, after, limiter=self.threads)

    async def frames(
        self, run_id: str, read: Read, page: Page, key_id: str
    ) -> AsyncGenerator[bytes, None]:
        """That page and all that follows, until the run has ended, or the caller is to come again."""
        with self._counted(key_id):
            yield RETRY
            try:
                async for frame in self._frames(run_id, read, page):
                    yield frame
            except Unavailable:
                return  # the caller comes again for what it has not seen

    @contextmanager
    def _counted(self, key_id: str) -> Iterator[None]:
        self.of_key[key_id] += 1
        try:
            yield
        finally:
            self.of_key[key_id] -= 1
            if not self.of_key[key_id]:
                del self.of_key[key_id]

    async def _frames(self, run_id: str, read: Read, page: Page) -> AsyncGenerator[bytes, None]:
        begun = said = time.monotonic()
        while True:
            if page["events"]:
                yield b"".join(map(_frame, page["events"]))
                said = time.monotonic()
            if page["final"] or time.monotonic() - begun > STREAM_S:
                return
            if time.monotonic() - said > BEAT_S:
                yield BEAT
                said = time.monotonic()
            async with self.wakes.listening(run_id) as waiter:
                if len(page["events"]) < PAGE:
                    await waiter.wait(POLL_S)
                page = await to_thread.run_sync(read, page["next"], limiter=self.threads)


class EventStream(StreamingResponse):
    """Frames as they come; their source is closed when the client goes away, not when its garbage is collected."""

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        # A proxy that gathers an answer before it passes it on would make old news of it.
        super().__init__(frames, headers={"X-Accel-Buffering": "no"})
        self._frames = frames

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._frames):
            await super().stream_response(send)


def _frame(event: dict[str, Any]) -> bytes:
    # JSON has no bare newline, so that it is one line of data.
    data = json.dumps(event, separators=(",", ":"))
    return f"id: {event['number']}\nevent: {event['kind']}\ndata: {data}\n\n".encode()
