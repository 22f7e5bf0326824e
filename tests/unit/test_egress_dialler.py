"""The process that connects for machines: it is nobody, it says what its worker would have said, and it may die."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.errors import Unavailable
from infra.egress import EgressProxy, Reach
from infra.egress.dialling import Dialler
from infra.egress.http import RequestRefusedError
from infra.settings import Settings
from tests.unit.test_egress_proxy import PATIENCE_S, Target, ask, connect, logged

UID = Settings().egress_uid
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


@pytest.fixture
def target() -> Iterator[Target]:
    made = Target()
    yield made
    made.close()


@pytest.fixture
def dialler() -> Iterator[Dialler]:
    made = Dialler(["127.0.0.1:*", "*:80", "*.invalid:*"], ["127.0.0.1:6379"], UID)
    yield made
    made.close()


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def end(dialler: Dialler, how: signal.Signals = signal.SIGKILL) -> None:
    """Kill its process and wait until its end is to be seen."""
    pinned = os.pidfd_open(dialler.pid)
    os.kill(dialler.pid, how)
    os.waitid(os.P_PIDFD, pinned, os.WEXITED | os.WNOWAIT)
    os.close(pinned)


@AS_ROOT
def test_it_is_nobody_for_good() -> None:
    groups = os.getgroups()
    os.setgroups([*groups, 4242])
    try:
        dialler = Dialler(uid=UID)
    finally:
        os.setgroups(groups)
    with closing(dialler):
        seen = status(dialler.pid)
    assert seen["Uid"].split() == [str(UID)] * 4
    assert seen["Gid"].split() == [str(UID)] * 4
    assert seen["Groups"] == ""
    assert seen["CapPrm"] == seen["CapEff"] == seen["CapInh"] == seen["CapAmb"] == "0" * 16
    assert seen["NoNewPrivs"] == "1"


def test_it_holds_nothing_of_its_worker(dialler: Dialler) -> None:
    there = Path(f"/proc/{dialler.pid}")
    assert (there / "environ").read_bytes() == b""
    open_files = {int(entry.name): entry.readlink() for entry in (there / "fd").iterdir()}
    assert sorted(open_files) == [0, 1, 2]
    assert str(open_files[0]).startswith("socket:")
    assert {str(open_files[1]), str(open_files[2])} == {"/dev/null"}
    assert (there / "cwd").readlink() == Path("/")


def test_a_tunnel_through_its_connection(dialler: Dialler, target: Target) -> None:
    where = f"127.0.0.1:{target.port}"
    answer = ask(EgressProxy(dialler.dial), (where,), connect(where) + b"hello")
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\nHELLO"


def test_its_word_is_what_the_worker_itself_would_have_said(dialler: Dialler) -> None:
    """Each refusal and each fault, word for word, so that evidence is as exact as it was."""
    reach = Reach(["127.0.0.1:*", "*:80", "*.invalid:*"], ["127.0.0.1:6379"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"127.0.0.1:{server.getsockname()[1]}"
    targets = [
        closed,
        "127.0.0.1:6379",
        "169.254.169.254:80",
        "2852039166:80",
        "[::ffff:a9fe:a9fe]:80",
        "no.invalid:1",
        f"{'x' * 64}.invalid:1",
        "unlisted.internal:443",
        "0:80",
        "no target",
    ]
    for each in targets:
        told = []
        for dial in (reach.dial, dialler.dial):
            with pytest.raises(RequestRefusedError) as refused:
                dial(each)
            one = refused.value
            told.append((one.status, one.message, one.target, one.what))
        assert told[0] == told[1], each


def test_many_at_once_each_get_their_own(dialler: Dialler) -> None:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(8)]
    ports = [int(server.getsockname()[1]) for server in servers]
    got: dict[int, list[int]] = {port: [] for port in ports}

    def dial_all() -> None:
        for port in ports:
            with dialler.dial(f"127.0.0.1:{port}") as connection:
                got[port].append(connection.getpeername()[1])

    threads = [threading.Thread(target=dial_all) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    for server in servers:
        server.close()
    assert got == {port: [port] * 8 for port in ports}


def test_a_dead_one_is_started_again_and_what_was_asked_is_asked_again(
    dialler: Dialler, target: Target
) -> None:
    where = f"127.0.0.1:{target.port}"
    first = dialler.pid
    end(dialler)
    egress = EgressProxy(dialler.dial)
    assert ask(egress, (where,), connect(where) + b"x").endswith(b"\r\n\r\nX")
    assert dialler.pid != first
    assert egress.log("m1") == ()


def test_one_that_dies_again_and_again_is_a_proxy_that_is_away(
    dialler: Dialler, target: Target
) -> None:
    where = f"127.0.0.1:{target.port}"
    egress = EgressProxy(dialler.dial)
    for _ in range(4):
        end(dialler)
        dialler.dial(where).close()
    end(dialler)
    assert ask(egress, (where,), connect(where)).startswith(b"HTTP/1.1 502 ")
    assert logged(egress) == [(where, "proxy_away")]


def test_one_that_hangs_is_replaced(
    dialler: Dialler, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = f"127.0.0.1:{target.port}"
    egress, frozen = EgressProxy(dialler.dial), dialler.pid
    os.kill(frozen, signal.SIGSTOP)
    with monkeypatch.context() as hurried:
        hurried.setattr("infra.egress.dialling._DIAL_S", 0.1)
        hurried.setattr("infra.egress.dialling._GONE_S", 0.1)
        assert ask(egress, (where,), connect(where)).startswith(b"HTTP/1.1 502 ")
    assert logged(egress) == [(where, "proxy_away")]
    assert ask(egress, (where,), connect(where) + b"x").endswith(b"\r\n\r\nX")
    assert dialler.pid != frozen


def test_a_target_that_takes_too_long_takes_the_way_out_from_nobody(
    dialler: Dialler, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    egress, before = EgressProxy(dialler.dial), dialler.pid
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        where = f"127.0.0.1:{full.getsockname()[1]}"
        with closing(dialler.dial(where)), monkeypatch.context() as hurried:
            hurried.setattr("infra.egress.dialling._DIAL_S", 0.1)
            assert ask(egress, (where,), connect(where)).startswith(b"HTTP/1.1 504 ")
    assert logged(egress) == [(where, "timed_out")]
    other = f"127.0.0.1:{target.port}"
    assert ask(egress, (other,), connect(other) + b"x").endswith(b"\r\n\r\nX")
    assert dialler.pid == before


def test_a_stopping_host_does_not_take_the_way_out_from_a_worker_that_drains(
    dialler: Dialler, target: Target
) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(dialler.pid, number)
    before = dialler.pid
    dialler.dial(f"127.0.0.1:{target.port}").close()
    assert dialler.pid == before


def test_a_closed_one_is_away_and_gone(target: Target) -> None:
    dialler = Dialler(["127.0.0.1:*"])
    dialler.close()
    dialler.close()
    assert not Path(f"/proc/{dialler.pid}").exists()
    with pytest.raises(RequestRefusedError) as refused:
        dialler.dial(f"127.0.0.1:{target.port}")
    assert refused.value.what == "proxy_away"


def test_it_ends_with_its_worker_however_that_ends() -> None:
    program = (
        "import os, signal\n"
        "from infra.egress.dialling import Dialler\n"
        "print(Dialler(['127.0.0.1:*']).pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    worker = subprocess.Popen((sys.executable, "-c", program), stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    with worker, worker.stdout:
        pid = int(worker.stdout.readline())
        try:
            pinned = os.pidfd_open(pid)
        except ProcessLookupError:
            return
    with os.fdopen(pinned):
        assert select.select([pinned], [], [], PATIENCE_S)[0] == [pinned]


def test_terms_that_it_does_not_understand_are_told_at_the_start() -> None:
    with pytest.raises(Unavailable, match="not host:port") as refused:
        Dialler([], never=["nonsense"])
    assert refused.value.code == "no_egress"
