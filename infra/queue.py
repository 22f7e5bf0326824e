"""The queue: doorbells over Celery and Redis, and the wake-ups of API handlers over Redis pub/sub.

Both ends share one configured Celery application (`celery`): publishers ring by name, a host's worker registers what
the names mean. A queue belongs to one host's worker process (`host.<host_id>`), since one process owns a machine's
channels; placing belongs to nobody and goes to the shared queue `control`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from urllib.parse import urlsplit

import redis
import redis.asyncio
import structlog
from celery import Celery
from kombu import Queue
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from app.errors import Unavailable

__all__ = [
    "CONTROL",
    "CeleryBells",
    "RedisWakes",
    "Task",
    "celery",
    "host_queue",
    "redis_url",
    "undeclared",
    "worker_queue",
]

CONTROL = "control"
# Every queue of one host or one worker process, as Redis matches names.
OF_ONE = ("host.*", "worker.*")
# A publisher that finds Redis away gives up after this: the rows are saved, recovery rings again.
CONNECT_TIMEOUT_S = 2
# Waiting API handlers re-read their row at least this often while no wake-up can reach them.
DEAF_WAIT_S = 1.0
FIRST_PAUSE_S = 0.1
_WAKES = "promigence:wake:"
# Where Celery keeps, of each worker, that it takes commands from Flower; a worker that was killed leaves its own there.
_EARS = "_kombu.binding.celery.pidbox"

log = structlog.get_logger(__name__)


class Task(StrEnum):
    """What can be rung. The names are the protocol between releases: an upgrade runs old and new side by side."""

    PLACE = "promigence.place"
    FORK = "promigence.fork"
    BUILD = "promigence.build"
    VERIFY = "promigence.verify"
    EXEC = "promigence.exec"
    COLLECT = "promigence.collect"
    STOP = "promigence.stop"
    ECHO = "promigence.echo"


def host_queue(host_id: str) -> str:
    """What any worker process of this host may do: bring up forks, build, settle builds."""
    return f"host.{host_id}"


def worker_queue(claim: str) -> str:
    """What only the worker process with this claim can do: it owns the channels of its machines."""
    return f"worker.{claim}"


def celery(broker_url: str) -> Celery:
    """The application as both ends configure it. Nothing connects before the first use."""
    app = Celery("promigence", broker=broker_url, set_as_current=False)
    app.conf.update(
        # A worker on a compromised host must not be sent code: data only.
        task_serializer="json",
        accept_content=["json"],
        # An exec's result is a row. The Redis result backend also calls a deprecated client method: under
        # warnings-as-errors results were never stored, and waiting for one timed out in silence.
        result_backend=None,
        task_ignore_result=True,
        # A bell is acknowledged as its task starts. Late acknowledgement would tie the work's fate to a message's:
        # with a visibility timeout shorter than the task it ran twice in parallel, with a longer one a killed worker's
        # message hung for minutes. Rows remember the work; recovery rings again within seconds.
        task_acks_late=False,
        # Only bells that wait in a worker are unacknowledged, and those for seconds; a worker that died with some is
        # rung again from the rows long before this.
        broker_transport_options={
            "visibility_timeout": 600,
            # Without these a worker that lost Redis may never consume again (a long history of reports).
            "socket_timeout": 10,
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            "socket_keepalive": True,
            "health_check_interval": 5,
            # A ring tries one new connection in place of a dead one, at once; then it is given up.
            "max_retries": 1,
            "interval_start": 0,
            # One list a queue instead of four: we have no priorities, and BRPOP looks at every list.
            "priority_steps": [0],
        },
        # Start in any order: a worker waits for its broker, and goes on waiting after it was lost.
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=CONNECT_TIMEOUT_S,
        # As many pooled connections as threads that ring at once; a ring never builds a connection of its own.
        broker_pool_limit=16,
        # A ring either reaches Redis or is given up at once: the caller has an answer to give.
        task_publish_retry=False,
        # No event of ours for each publish: Flower learns of tasks from the workers.
        task_send_sent_event=False,
        # UTC and intervals; local time skips and doubles hours.
        enable_utc=True,
        timezone="UTC",
        # A thread that is busy takes no bell from one that is free.
        worker_prefetch_multiplier=1,
        # The rate-limit machinery costs a step a task and we limit by rows.
        worker_disable_rate_limits=True,
        # Flower shows what the worker does. The events of a host worker are buffered and sent in groups.
        worker_send_task_events=True,
        # After Redis came back, running tasks go on: they hold machines, and their claims are fenced.
        worker_cancel_long_running_tasks_on_connection_loss=False,
        # structlog writes the logs; Celery would replace its handlers.
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    return app


def undeclared(name: str) -> Queue:
    """A queue that exists in Redis as long as bells wait in it, and in no other way.

    Declared, it would leave a binding in the set of its exchange, which nothing removes when its worker is gone.
    """
    return Queue(name, no_declare=True)


def redis_url(broker_url: str) -> str:
    """The same Redis as redis-py names it: Celery's `redis+socket:///path` is its `unix:///path`."""
    parts = urlsplit(broker_url)
    if parts.scheme != "redis+socket":
        return broker_url
    query = parts.query.replace("virtual_host=", "db=")
    return f"unix://{parts.path}" + (f"?{query}" if query else "")


class CeleryBells:
    """`Bells` on pooled connections. A host runs `at_once` fork tasks at once: more bells would say nothing new."""

    def __init__(self, app: Celery, *, at_once: int) -> None:
        self._app = app
        self._at_once = at_once
        self._redis = redis.Redis.from_url(
            redis_url(str(app.conf.broker_url)),
            socket_timeout=CONNECT_TIMEOUT_S,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
        )
        self._outage = _Outage()

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
        """Raises Unavailable(queue_away) unless Redis answers."""
        try:
            self._redis.ping()
        except RedisError as away:
            raise Unavailable("queue_away", f"no answer from Redis: {away}") from away

    def echo(self, queue: str, token: str) -> None:
        """A real task on a worker's or a host's queue, whose answer is `echoed(token)`: liveness."""
        self._ring(queue, Task.ECHO, token)

    def answer(self, token: str) -> None:
        """What the echo task does."""
        self._say(lambda: self._answer(token))

    def echoed(self, token: str, timeout_s: float) -> bool:
        """Wait for the answer to an echo; False when there was none in time, or Redis is away."""
        until = time.monotonic() + timeout_s
        try:
            while (left_s := until - time.monotonic()) > 0:
                # The client's own time limit must outlast the wait at the server.
                if self._redis.blpop([_echo(token)], timeout=min(left_s, CONNECT_TIMEOUT_S / 2)):
                    return True
        except RedisError:
            return False
        return False

    def sweep(self, living: Callable[[], frozenset[str]]) -> int:
        """Remove the queues of worker processes that are gone, and where they listened for commands; how many.

        `living` are the claims of those that are not. They are read after Redis: who begins meanwhile has a row before
        it has a queue. Raises Unavailable(queue_away).
        """
        try:
            queues = {key.decode() for key in self._redis.scan_iter(match=worker_queue("*"))}
            ears = {bytes(ear).decode() for ear in self._redis.sscan_iter(_EARS)}
            kept = {worker_queue(claim) for claim in living()}
            gone = [name for name in queues if name not in kept]
            deaf = [ear for ear in ears if _listener(ear) not in kept]
            with self._redis.pipeline() as pipe:
                for name in gone:
                    pipe.delete(name)
                for ear in deaf:
                    pipe.srem(_EARS, ear)
                pipe.execute()
        except RedisError as away:
            raise Unavailable("queue_away", f"no answer from Redis: {away}") from away
        return len(gone) + len(deaf)

    def woken(self, exec_id: str) -> None:
        self._say(lambda: self._redis.publish(_WAKES + exec_id, b""))

    def close(self) -> None:
        """Give the connections back. The bells cannot ring afterwards."""
        self._redis.close()
        self._app.close()

    def _answer(self, token: str) -> None:
        with self._redis.pipeline() as pipe:
            pipe.rpush(_echo(token), b"1")
            pipe.expire(_echo(token), 60)
            pipe.execute()

    def _ring(self, queue: str, task: Task, *ids: str, times: int = 1) -> None:
        try:
            with self._app.producer_or_acquire() as producer:
                for _ in range(times):
                    # Straight to the queue's list: see `undeclared`.
                    self._app.send_task(
                        task.value, args=ids, queue=queue, producer=producer, declare=[]
                    )
        except (OperationalError, RedisError, OSError) as away:
            self._outage.began(away)
        else:
            self._outage.ended()

    def _say(self, act: Callable[[], object]) -> None:
        try:
            act()
        except RedisError as away:
            self._outage.began(away)
        else:
            self._outage.ended()


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
        self._outage = _Outage()

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
            await channel.psubscribe(_WAKES + "*")
            async for message in channel.listen():
                if message["type"] == "psubscribe":
                    self._subscribed.set()
                    self._outage.ended()
                elif message["type"] == "pmessage":
                    self._wake(bytes(message["channel"]).decode().removeprefix(_WAKES))

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


class _Outage:
    """Says once that Redis is away, and once that it is back."""

    def __init__(self) -> None:
        self._away = threading.Event()

    def began(self, why: BaseException) -> None:
        if not self._away.is_set():
            self._away.set()
            log.warning("queue_away", why=type(why).__name__)

    def ended(self) -> None:
        if self._away.is_set():
            self._away.clear()
            log.info("queue_back")


def _listener(ear: str) -> str:
    """The own queue of the worker whose ear this is: kombu writes key, pattern and `<queue>@<host>.celery.pidbox`."""
    return ear.rpartition("\x16")[2].partition("@")[0]


def _echo(token: str) -> str:
    return f"promigence:echo:{token}"
