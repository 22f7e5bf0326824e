"""Bells and wake-ups over a real Redis, which goes away and comes back."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis

from app.errors import Unavailable
from infra.queue import (
    CONTROL,
    CeleryBells,
    RedisWakes,
    control_queue,
    host_queue,
    worker_queue,
)
from infra.stack.parts import redis_argv
from tests.integration.stacks import until
from workers.stack.supervise import redis_binary

LIMIT_S = 20
# Where Celery itself keeps who takes commands.
EARS = "_kombu.binding.celery.pidbox"


@contextmanager
def running(socket: Path) -> Iterator[redis.Redis]:
    """A Redis as the stack starts it."""
    binary = redis_binary()
    assert binary is not None
    server = subprocess.Popen(redis_argv(binary, socket), stdout=subprocess.DEVNULL)
    client = redis.Redis(unix_socket_path=str(socket))
    try:
        until(socket.exists, "a socket")
        client.ping()
        yield client
    finally:
        client.close()
        server.terminate()
        server.wait(LIMIT_S)


@pytest.fixture
def socket() -> Iterator[Path]:
    # A test's own directory is too deep for a socket.
    with TemporaryDirectory(dir="/tmp", prefix="pmg") as directory:
        yield Path(directory) / "redis.sock"


@pytest.fixture
def bells(socket: Path) -> Iterator[CeleryBells]:
    made = CeleryBells(f"redis+socket://{socket}", at_once=3)
    yield made
    made.close()


def test_a_batch_rings_no_more_than_a_host_runs_at_once(bells: CeleryBells, socket: Path) -> None:
    with running(socket) as broker:
        bells.fork("h", 500)
        bells.fork("h", 1)
        bells.place()

        assert broker.llen(host_queue("h")) == 4
        assert broker.llen(CONTROL) == 1


def test_a_bell_leaves_nothing_in_redis_but_itself(bells: CeleryBells, socket: Path) -> None:
    with running(socket) as broker:
        bells.exec("claim_1", "exec_1")
        bells.collect("claim_2", "att_2")
        bells.stop("claim_2", "att_2")
        bells.verify("h", "build_1")
        waiting = {key.decode(): broker.llen(key) for key in broker.scan_iter()}

        assert waiting == {
            worker_queue("claim_1"): 1,
            worker_queue("claim_2"): 2,
            host_queue("h"): 1,
        }


def test_bells_ring_again_when_the_queue_is_back(bells: CeleryBells, socket: Path) -> None:
    with running(socket):
        bells.place()
    bells.place()
    with running(socket) as broker:
        bells.place()
        bells.ping()

        assert broker.llen(CONTROL) == 1


def test_an_echo_is_heard_once_it_is_answered(bells: CeleryBells, socket: Path) -> None:
    with running(socket):
        assert not bells.echoed("queue", "token", 0.1)
        bells.answer("queue:token")
        assert not bells.echoed("another", "token", 0.1)
        assert bells.echoed("queue", "token", 5)


def test_a_waiter_is_woken_for_its_command_only(bells: CeleryBells, socket: Path) -> None:
    async def wait() -> tuple[bool, bool]:
        wakes = RedisWakes(f"redis+socket://{socket}")
        try:
            async with wakes.listening("exec_1") as one, wakes.listening("exec_2") as other:
                # What a host tells in a name that is none deafens nobody.
                await asyncio.to_thread(broker.publish, b"promigence:wake:\xff", b"")
                await asyncio.to_thread(bells.woken, "exec_1")
                return await one.wait(LIMIT_S), await other.wait(0.1)
        finally:
            await wakes.aclose()

    with running(socket) as broker:
        assert asyncio.run(wait()) == (True, False)


def test_without_a_queue_a_waiter_gives_up_soon_to_read_the_row(socket: Path) -> None:
    async def wait() -> bool:
        wakes = RedisWakes(f"redis+socket://{socket}")
        try:
            async with asyncio.timeout(LIMIT_S), wakes.listening("exec_1") as waiter:
                return await waiter.wait(10 * LIMIT_S)
        finally:
            await wakes.aclose()

    assert asyncio.run(wait()) is False


def test_a_waiter_is_woken_to_read_again_when_its_subscription_is_lost(socket: Path) -> None:
    async def wait() -> bool:
        wakes = RedisWakes(f"redis+socket://{socket}")
        server = ExitStack()
        server.enter_context(running(socket))
        try:
            async with wakes.listening("exec_1") as waiter:
                await asyncio.to_thread(server.close)
                return await waiter.wait(LIMIT_S)
        finally:
            server.close()
            await wakes.aclose()

    assert asyncio.run(wait()) is True


def test_a_subscription_comes_back_with_the_queue(bells: CeleryBells, socket: Path) -> None:
    async def wait() -> bool:
        wakes = RedisWakes(f"redis+socket://{socket}")
        try:
            async with asyncio.timeout(LIMIT_S):
                async with wakes.listening("exec_1") as waiter:
                    assert not await waiter.wait(LIMIT_S)
                with running(socket):
                    while True:
                        async with wakes.listening("exec_1") as waiter:
                            await asyncio.to_thread(bells.woken, "exec_1")
                            if await waiter.wait(1):
                                return True
        finally:
            await wakes.aclose()

    assert asyncio.run(wait())


def test_what_processes_that_are_gone_left_is_removed(bells: CeleryBells, socket: Path) -> None:
    old, new = worker_queue("h:old"), worker_queue("h:new")
    off, on = control_queue("off"), control_queue("on")
    with running(socket) as broker:
        for queue in (old, new, off, on):
            broker.lpush(queue, b"a bell")
            broker.sadd(EARS, _ear(queue))
        broker.sadd(EARS, _ear("another's"))
        bells.alive(on)
        bells.place()

        assert bells.sweep(lambda: frozenset({"h:new"})) == 4
        assert bells.sweep(lambda: frozenset({"h:new"})) == 0
        left = {key.decode() for key in broker.scan_iter()}
        assert left == {new, on, CONTROL, EARS, f"promigence:alive:{on}"}
        assert broker.smembers(EARS) == {_ear(name) for name in (new, on, "another's")}
        assert 0 < broker.ttl(f"promigence:alive:{on}") <= 60


def test_one_at_a_time_is_alone(bells: CeleryBells, socket: Path) -> None:
    with running(socket) as broker:
        with bells.alone("x", 60) as first, bells.alone("x", 60) as second:
            assert (first, second) == (True, False)
            with bells.alone("y", 60) as other:
                assert other
            assert 0 < broker.ttl("promigence:alone:x") <= 60
        with bells.alone("x", 60) as again:
            assert again
            # It took too long, and somebody else began.
            broker.set("promigence:alone:x", "another's")
        assert broker.get("promigence:alone:x") == b"another's"
    with pytest.raises(Unavailable), bells.alone("x", 60):
        pass


def test_sweeping_a_queue_that_is_away_says_so(bells: CeleryBells) -> None:
    with pytest.raises(Unavailable, match="no answer from Redis"):
        bells.sweep(frozenset)


def _ear(queue: str) -> bytes:
    return f"\x06\x16\x06\x16{queue}@h.celery.pidbox".encode()
