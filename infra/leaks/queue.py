"""`Traces` of the queue: keys of ours that would stay for ever, and bells that nobody hears any more."""

from __future__ import annotations

from collections.abc import Iterator

import redis
from redis.exceptions import NoPermissionError, RedisError

from app.domain.leak import Leak, LeakKind, Trace
from app.errors import Unavailable

# Every key that we make ourselves begins so. What Celery keeps is its own.
OURS = "promigence:"
# Who waits for a bell takes it at once; a host that is busy is rung for again every second.
UNHEARD_S = 60
_FOR_EVER = -1
_EXPIRES_S = 60
_TIMEOUT_S = 2.0


class QueueTraces:
    """Of the Redis at this URL (as redis-py writes it); a Redis may serve others too, whose keys are not looked at.

    `queues` are the names, as Redis matches them, of queues whose only reader may be gone for good.
    """

    def __init__(self, url: str, queues: tuple[str, ...] = ()) -> None:
        self._queues = queues
        self._redis = redis.Redis.from_url(
            url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S
        )

    def found(self) -> tuple[Trace, ...]:
        """Keys without an expiry, and queues that nobody rings or reads; nothing where our user may list no keys, as a
        host's may not: then the control plane looks. Raises Unavailable(queue_away).
        """
        try:
            return (*self._lasting(), *self._unheard())
        except NoPermissionError:
            return ()
        except RedisError as away:
            raise Unavailable("queue_away", f"no answer from Redis: {away}") from away

    def remove(self, leak: Leak) -> bool:
        """Give a key an end that comes soon; whoever still works with it has until then."""
        try:
            lasts = self._redis.ttl(leak.name) == _FOR_EVER
            return lasts and bool(self._redis.expire(leak.name, _EXPIRES_S))
        except RedisError:
            return False

    def close(self) -> None:
        """Give the connections back."""
        self._redis.close()

    def _lasting(self) -> Iterator[Trace]:
        for raw in self._redis.scan_iter(match=f"{OURS}*", count=1000):
            key = raw.decode("utf-8", "replace")
            if self._redis.ttl(raw) == _FOR_EVER:
                yield Trace(Leak(LeakKind.REDIS_KEY, key), owner=None)

    def _unheard(self) -> Iterator[Trace]:
        for name in self._queues:
            for raw in self._redis.scan_iter(match=name, count=1000, _type="list"):
                if self._redis.ttl(raw) == _FOR_EVER and self._idle_s(raw) >= UNHEARD_S:
                    key = raw.decode("utf-8", "replace")
                    said = "bells that nobody hears"
                    yield Trace(Leak(LeakKind.REDIS_KEY, key, said), owner=None)

    def _idle_s(self, key: bytes) -> int:
        """Since it was last written or read, by Redis's own count; 0 if it is gone."""
        return int(self._redis.object("idletime", key) or 0)
