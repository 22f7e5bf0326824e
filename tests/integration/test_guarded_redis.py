"""What each user of a real Redis 7 may do there, and what no user may; its certificate; the hosts' logins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import redis
from redis.exceptions import AuthenticationError, NoPermissionError

from app.errors import BadRequest, Forbidden, Unavailable
from infra.access.redis import RedisLogins, with_login
from infra.conformance_access import LOGIN_CHECKS, LoginSubject
from infra.leaks.queue import QueueTraces
from infra.queue import OF_ONE, CeleryBells, RedisWakes, redis_url
from infra.queue.rules import of_host
from tests.integration.certificates import Authority
from tests.integration.guarded_redis import GuardedRedis, guarded
from tests.integration.stacks import until

HOST, OTHER = "i-1", "i-1.x"
LIMIT_S = 20.0

# Of another host, of the server, of everybody: (command, what it would do).
REFUSED_TO_A_HOST = (
    *((verb, f"host.{OTHER}") for verb in ("RPOP", "LLEN", "DEL", "EXISTS")),
    ("LPUSH", f"host.{OTHER}", "a bell"),
    ("RPUSH", f"worker.{OTHER}:1", "a bell"),
    ("BRPOP", f"worker.{OTHER}:1", "1"),
    ("BRPOP", f"host.{HOST}", f"host.{OTHER}", "1"),
    ("BLPOP", f"promigence:echo:host.{OTHER}:token", "1"),
    ("LPUSH", f"promigence:echo:worker.{OTHER}:1:token", "1"),
    *((verb, "control") for verb in ("RPOP", "DEL", "LLEN")),
    ("BRPOP", "control", "1"),
    ("LPUSH", "control.1", "a bell"),
    ("RPOP", "1.reply.celery.pidbox"),
    ("PUBLISH", "/0.celery.pidbox", "shutdown"),
    ("SUBSCRIBE", "promigence:wake:exec_1"),
    ("PSUBSCRIBE", "promigence:wake:*"),
    ("PSUBSCRIBE", "/0.celeryev/*"),
    ("SET", f"host.{HOST}", "x"),
    ("GET", f"host.{HOST}"),
    ("LRANGE", f"host.{HOST}", "0", "-1"),
    ("MIGRATE", "elsewhere", "6379", f"host.{HOST}", "0", "1"),
    ("EVAL", "return 1", "0"),
    ("SCRIPT", "LOAD", "return 1"),
    ("FUNCTION", "LIST"),
    ("SCAN", "0"),
    ("KEYS", "*"),
    ("RANDOMKEY",),
    ("CONFIG", "GET", "*"),
    ("ACL", "LIST"),
    ("ACL", "WHOAMI"),
    ("CLIENT", "LIST"),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("INFO",),
    ("MONITOR",),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("SHUTDOWN",),
    ("REPLICAOF", "NO", "ONE"),
    ("SAVE",),
    ("SLOWLOG", "GET"),
    ("PUBSUB", "CHANNELS"),
    ("SWAPDB", "0", "1"),
)
REFUSED_TO_FLOWER = (
    ("LPUSH", "control", "a bell"),
    ("RPOP", f"host.{HOST}"),
    ("BRPOP", f"worker.{HOST}:1", "1"),
    ("DEL", f"host.{HOST}"),
    ("LRANGE", f"host.{HOST}", "0", "-1"),
    ("LLEN", "promigence:echo:1"),
    ("PUBLISH", "promigence:wake:exec_1", ""),
    ("PUBLISH", "/0.celeryev/task.failed", "a lie"),
    ("PSUBSCRIBE", "promigence:wake:*"),
    ("SCAN", "0"),
    ("EVAL", "return 1", "0"),
    ("CONFIG", "GET", "*"),
)
REFUSED_TO_THE_CONTROL_PLANE = (
    ("GET", "another's"),
    ("CONFIG", "GET", "*"),
    ("ACL", "LIST"),
    ("CLIENT", "LIST"),
    ("KEYS", "*"),
    ("EVAL", "return 1", "0"),
    ("FLUSHALL",),
    ("MONITOR",),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedRedis]:
    with guarded(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def logins(server: GuardedRedis) -> Iterator[RedisLogins]:
    with closing(server.logins()) as made:
        yield made
        for host_id in made.list():
            made.remove(host_id)


@pytest.mark.parametrize("check", LOGIN_CHECKS, ids=lambda check: check.__name__)
def test_the_contract_of_logins(
    server: GuardedRedis, logins: RedisLogins, check: Callable[[LoginSubject], None]
) -> None:
    check(LoginSubject(logins, _opens, lambda: sorted(map(str, server.admin.acl_list()))))


def test_a_host_reaches_its_own(server: GuardedRedis, logins: RedisLogins) -> None:
    with _as(logins.create(HOST)) as host:
        for queue in (f"host.{HOST}", f"worker.{HOST}:1"):
            host.lpush(queue, "a bell")
            assert host.brpop([queue], timeout=1) == (queue.encode(), b"a bell")
        assert host.lpush("control", "a bell") == 1
        assert host.publish("promigence:wake:exec_1", "") == 0
        assert host.publish("/0.celeryev/worker.heartbeat", "") == 0
        assert server.admin.rpop("control") == "a bell"


@pytest.mark.parametrize("command", REFUSED_TO_A_HOST, ids=" ".join)
def test_a_host_reaches_nothing_else(logins: RedisLogins, command: tuple[str, ...]) -> None:
    logins.create(OTHER)
    _refused(logins.create(HOST), command)


@pytest.mark.parametrize("command", REFUSED_TO_FLOWER, ids=" ".join)
def test_flower_only_looks(server: GuardedRedis, command: tuple[str, ...]) -> None:
    _refused(server.flower(), command)


def test_flower_sees_how_long_queues_are(server: GuardedRedis) -> None:
    server.admin.lpush(f"host.{HOST}", "a bell")
    with _as(server.flower()) as flower:
        assert flower.llen(f"host.{HOST}") == 1
    server.admin.delete(f"host.{HOST}")


@pytest.mark.parametrize("command", REFUSED_TO_THE_CONTROL_PLANE, ids=" ".join)
def test_the_control_plane_does_not_administer(
    server: GuardedRedis, command: tuple[str, ...]
) -> None:
    _refused(server.control(), command)


def test_who_is_shut_out_is_cut_off(logins: RedisLogins) -> None:
    url = logins.create(HOST)
    with _as(url) as host, ThreadPoolExecutor(1) as pool:
        host.ping()
        waiting = pool.submit(host.brpop, [f"host.{HOST}"], timeout=LIMIT_S)
        logins.remove(HOST)
        with pytest.raises(redis.ConnectionError):
            waiting.result(LIMIT_S)
    with closing(CeleryBells(url, at_once=1)) as bells:
        with pytest.raises(Unavailable) as refused:
            bells.ping()
        assert refused.value.code == "queue_denied"


def test_only_an_administrator_lets_hosts_in(server: GuardedRedis) -> None:
    with closing(RedisLogins(redis_url(server.control()), server.url, of_host)) as logins:
        for act in (lambda: logins.create(HOST), lambda: logins.remove(HOST), logins.list):
            with pytest.raises(Forbidden, match="manage no users"):
                act()


def test_hosts_have_rules_that_a_host_of_another_name_does_not_match(logins: RedisLogins) -> None:
    """Of two hosts one's id begins with the other's."""
    with _as(logins.create(OTHER)) as other:
        for key in (f"host.{HOST}", f"worker.{HOST}:1"):
            with pytest.raises(NoPermissionError):
                other.llen(key)


def test_what_nobody_owns_is_looked_for_by_who_may(
    server: GuardedRedis, logins: RedisLogins
) -> None:
    server.admin.set("promigence:left", "for ever")
    seen = {}
    for name, url in (("host", logins.create(HOST)), ("control", server.control())):
        with closing(QueueTraces(redis_url(url), OF_ONE)) as traces:
            seen[name] = [trace.leak.name for trace in traces.found()]
    server.admin.delete("promigence:left")

    assert seen == {"host": [], "control": ["promigence:left"]}


def test_a_certificate_of_somebody_else_is_refused(server: GuardedRedis, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    place = server.control().partition("?")[0]
    for url in (
        f"{place}?ssl_ca_certs={stranger.ca}",
        # Signed by nobody whom the system knows.
        place,
        # Signed by ours, for another name.
        server.control().replace("localhost", "127.0.0.1"),
    ):
        with closing(CeleryBells(url, at_once=1)) as bells:
            with pytest.raises(Unavailable, match="certificate") as refused:
                bells.ping()
            assert refused.value.code == "queue_untrusted"


def test_bells_and_wakes_go_by_tls(server: GuardedRedis) -> None:
    async def woken(bells: CeleryBells) -> bool:
        wakes = RedisWakes(server.control())
        try:
            async with wakes.listening("exec_1") as waiter:
                await asyncio.to_thread(bells.woken, "exec_1")
                return await waiter.wait(LIMIT_S)
        finally:
            await wakes.aclose()
            # The end of TLS is said and answered; the loop must not be gone before.
            await asyncio.to_thread(until, lambda: not _listeners(server), "nobody who listens")

    with closing(CeleryBells(server.control(), at_once=1)) as bells:
        bells.place()
        assert server.admin.llen("control") == 1
        assert asyncio.run(woken(bells))
    server.admin.delete("control")


def test_a_socket_is_no_place_for_a_host() -> None:
    with pytest.raises(BadRequest, match="redis://"):
        with_login("unix:///run/redis.sock", "host", "password")


def _refused(url: str, command: tuple[str, ...]) -> None:
    with _as(url) as client, pytest.raises(NoPermissionError):
        client.execute_command(*command)


def _listeners(server: GuardedRedis) -> list[str]:
    return [each["id"] for each in server.admin.client_list(_type="pubsub")]


def _as(url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url(url), socket_timeout=2 * LIMIT_S)


def _opens(url: str) -> bool:
    with _as(url) as client:
        try:
            return bool(client.ping())
        except AuthenticationError:
            return False
