"""The doorbells: a Celery task each, on pooled connections."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import redis
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from infra.queue.address import CONNECT_TIMEOUT_S, redis_url
from infra.queue.application import celery
from infra.queue.names import ALIVE, ALONE, CONTROL, WAKES, Task, echo_key, host_queue, worker_queue
from infra.queue.outage import Outage, away
from infra.queue.sweeping import sweep

ECHO_LIFE_S = 60
ALIVE_S = 60


class CeleryBells:
    """`Bells` on pooled connections. A host runs `at_once` fork tasks at once: more bells would say nothing new."""

    def __init__(self, broker_url: str, *, at_once: int) -> None:
        self._app = celery(broker_url)
        self._at_once = at_once
        self._redis = redis.Redis.from_url(
            redis_url(broker_url),
            socket_timeout=CONNECT_TIMEOUT_S,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
        )
        self._outage = Outage()

    def place(self) -> None:
        self._ring(CONTROL, Task.PLACE)

    def fork(self, host_id: str, count: int = 1) -> None:
        self._ring(host_queue(host_id), Task.FORK, times=min(count, self._at_once))

    def build(self, host_id: str, build_id: str) -> None:
        self._ring(host_queue(host_id), Task.BUILD, build_id)

    def verify(self, host_id: str, build_id: str) -> None:
        self._ring(host_queue(host_id), Task.VERIFY, build_id)

    def exec(self, claim: str, exec_id: str) -> None:
        self._ring(worker_queue(claim), Task.EXEC, exec_id)

    def collect(self, claim: str, attempt_id: str) -> None:
        self._ring(worker_queue(claim), Task.COLLECT, attempt_id)

    def stop(self, claim: str, attempt_id: str) -> None:
        self._ring(worker_queue(claim), Task.STOP, attempt_id)

    def ping(self) -> None:
        """Raises Unavailable(queue_away, queue_untrusted, queue_denied) unless Redis answers us."""
        try:
            self._redis.ping()
        except RedisError as error:
            raise away(error) from error

    def echo(self, queue: str, token: str) -> None:
        """A real task on somebody's queue, whose answer is `echoed(queue, token)`: liveness."""
        self._ring(queue, Task.ECHO, f"{queue}:{token}")

    def answer(self, token: str) -> None:
        """What the echo task does."""
        self._say(lambda: self._answer(token))

    def echoed(self, queue: str, token: str, timeout_s: float) -> bool:
        """Wait for the answer to an echo; False when there was none in time, or Redis is away."""
        key, until = echo_key(f"{queue}:{token}"), time.monotonic() + timeout_s
        try:
            while (left_s := until - time.monotonic()) > 0:
                # The client's own time limit must outlast the wait at the server.
                if self._redis.blpop([key], timeout=min(left_s, CONNECT_TIMEOUT_S / 2)):
                    return True
        except RedisError:
            return False
        return False

    def alive(self, queue: str) -> None:
        """Say that the process of the control plane whose own queue this is lives, for a minute: it has no row."""
        self._say(lambda: self._redis.set(ALIVE + queue, b"", ex=ALIVE_S))

    @contextmanager
    def alone(self, what: str, for_s: int) -> Iterator[bool]:
        """Inside, whether nobody else of the deployment does this now. Who dies inside keeps others out for `for_s`,
        and who takes longer does not keep them out any more. Raises Unavailable(queue_away).
        """
        key, token = f"{ALONE}{what}", secrets.token_hex(16).encode()
        try:
            got = bool(self._redis.set(key, token, nx=True, ex=for_s))
        except RedisError as error:
            raise away(error) from error
        try:
            yield got
        finally:
            with suppress(RedisError):
                if got and self._redis.get(key) == token:
                    self._redis.delete(key)

    def sweep(self, living: Callable[[], frozenset[str]]) -> int:
        """Remove the queues of processes that are gone, and where they listened for commands; how many.

        `living` are the claims of the hosts' processes that are not. They are read after Redis: who begins meanwhile
        has a row before it has a queue. Raises Unavailable(queue_away).
        """
        try:
            return sweep(self._redis, living)
        except RedisError as error:
            raise away(error) from error

    def woken(self, exec_id: str) -> None:
        self._say(lambda: self._redis.publish(WAKES + exec_id, b""))

    def close(self) -> None:
        """Give the connections back. The bells cannot ring afterwards."""
        self._redis.close()
        self._app.close()

    def _answer(self, token: str) -> None:
        with self._redis.pipeline() as pipe:
            pipe.rpush(echo_key(token), b"1")
            pipe.expire(echo_key(token), ECHO_LIFE_S)
            pipe.execute()

    def _ring(self, queue: str, task: Task, *ids: str, times: int = 1) -> None:
        try:
            with self._app.producer_or_acquire() as producer:
                for _ in range(times):
                    # Straight to the queue's list: see `undeclared`.
                    self._app.send_task(
                        task.value, args=ids, queue=queue, producer=producer, declare=[]
                    )
        except (OperationalError, RedisError, OSError) as error:
            self._outage.began(error)
        else:
            self._outage.ended()

    def _say(self, act: Callable[[], object]) -> None:
        try:
            act()
        except RedisError as error:
            self._outage.began(error)
        else:
            self._outage.ended()
