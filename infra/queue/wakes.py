"""The wake-ups of API handlers over Redis pub/sub."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import redis.asyncio
from redis.exceptions import RedisError

from infra.queue.address import CONNECT_TIMEOUT_S, redis_url
from infra.queue.names import WAKES
from infra.queue.outage import Outage

# Waiting API handlers re-read their row at least this often while no wake-up can reach them.
DEAF_WAIT_S = 1.0
FIRST_PAUSE_S = 0.1


class RedisWakes:
    """`Wakes` of one event loop: one subscription for all waiting handlers, made at the first one."""

    def __init__(self, broker_url: str) -> None:
        self._redis = redis.asyncio.Redis.from_url(
            redis_url(broker_url),
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            health_check_interval=10,
        )
        self._heard: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._subscribed = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._outage = Outage()

    @asynccontextmanager
    async def listening(self, exec_id: str) -> AsyncIterator[_Waiter]:
        """Subscribed on entry, or deaf: then the waiter only times out, in a second at most."""
        event = asyncio.Event()
        self._heard[exec_id].add(event)
        try:
            await self._ensure_subscribed()
            yield _Waiter(event, self._subscribed)
        finally:
            self._heard[exec_id].discard(event)
            if not self._heard[exec_id]:
                del self._heard[exec_id]

    async def aclose(self) -> None:
        """End the subscription. Twice is safe."""
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
            self._reader = None
        await self._redis.aclose()

    async def _ensure_subscribed(self) -> None:
        if self._reader is not None:
            return
        self._reader = asyncio.create_task(self._read_forever())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._subscribed.wait(), DEAF_WAIT_S)

    async def _read_forever(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self._read()
            except (RedisError, OSError) as away:
                self._outage.began(away)
            if self._subscribed.is_set():
                self._subscribed.clear()
                self._wake_all()
                pause_s = FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, DEAF_WAIT_S)

    async def _read(self) -> None:
        async with self._redis.pubsub() as channel:
            await channel.psubscribe(WAKES + "*")
            async for message in channel.listen():
                if message["type"] == "psubscribe":
                    self._subscribed.set()
                    self._outage.ended()
                elif message["type"] == "pmessage":
                    self._wake(
                        bytes(message["channel"]).decode(errors="replace").removeprefix(WAKES)
                    )

    def _wake(self, exec_id: str) -> None:
        for event in self._heard.get(exec_id, ()):
            event.set()

    def _wake_all(self) -> None:
        # What was published while nobody listened is lost: everyone reads the rows again.
        for exec_id in tuple(self._heard):
            self._wake(exec_id)


class _Waiter:
    def __init__(self, event: asyncio.Event, subscribed: asyncio.Event) -> None:
        self._event = event
        self._subscribed = subscribed

    async def wait(self, timeout_s: float) -> bool:
        """True when woken since the listening began, False after `timeout_s`."""
        limit_s = timeout_s if self._subscribed.is_set() else min(timeout_s, DEAF_WAIT_S)
        try:
            await asyncio.wait_for(self._event.wait(), limit_s)
        except TimeoutError:
            return False
        return True
