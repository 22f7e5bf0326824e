"""The proxy on real sockets: who gets through, to which address, and what is kept of the rest."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from infra.egress import EgressProxy, Reach
from infra.egress.addresses import resolve
from infra.egress.reach import Resolver

PATIENCE_S = 10.0


class Channel:
    """A machine's connection, as an SSH channel has it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.recv = sock.recv
        self.sendall = sock.sendall
        self.settimeout = sock.settimeout
        self.close = sock.close

    def shutdown_write(self) -> None:
        self._sock.shutdown(socket.SHUT_WR)


class Target:
    """A server that answers every connection with what it was sent, upper case, at its end or at an empty line."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.seen: list[bytes] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._server.accept()
            with closing(connection):
                connection.settimeout(PATIENCE_S)
                data = b""
                while not data.endswith(b"\r\n\r\n") and (more := connection.recv(4096)):
                    data += more
                self.seen.append(data)
                if data == b"stop":
                    return
                connection.sendall(data.upper())

    def close(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as last:
            last.sendall(b"stop")
            last.shutdown(socket.SHUT_WR)
            self._thread.join(PATIENCE_S)
        self._server.close()


@pytest.fixture
def target() -> Iterator[Target]:
    made = Target()
    yield made
    made.close()


def proxy(
    operator_allows: list[str], never: list[str] | None = None, resolver: Resolver = resolve
) -> EgressProxy:
    """One that connects in this process; how it does so in its own, `test_egress_dialler.py` has."""
    return EgressProxy(Reach(operator_allows, never or [], resolver).dial)


def ask(
    egress: EgressProxy, targets: tuple[str, ...], data: bytes, *, hang_up: bool = True
) -> bytes:
    """What a machine gets for what it says."""
    ours, theirs = socket.socketpair()
    serving = threading.Thread(target=egress.serve, args=("m1", Channel(theirs), targets))
    serving.start()
    with ours:
        ours.settimeout(PATIENCE_S)
        ours.sendall(data)
        if hang_up:
            ours.shutdown(socket.SHUT_WR)
        answer = b""
        while more := ours.recv(4096):
            answer += more
    serving.join(PATIENCE_S)
    assert not serving.is_alive()
    return answer


def connect(target: str) -> bytes:
    return f"CONNECT {target} HTTP/1.1\r\n\r\n".encode()


def logged(egress: EgressProxy) -> list[tuple[str, str]]:
    return [(line["target"], line["what"]) for line in egress.log("m1")]


def test_a_tunnel_to_what_both_lists_allow(target: Target) -> None:
    where = f"127.0.0.1:{target.port}"
    answer = ask(proxy([where]), (where,), connect(where) + b"hello")
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\nHELLO"


def test_a_plain_request_to_what_both_lists_allow(target: Target) -> None:
    where = f"127.0.0.1:{target.port}"
    egress = proxy(["127.0.0.1:*"])
    answer = ask(egress, (where,), f"GET http://{where}/p HTTP/1.1\r\n\r\n".encode(), hang_up=False)
    assert answer == f"GET /P HTTP/1.1\r\nHOST: {where}\r\nCONNECTION: CLOSE\r\n\r\n".encode()
    assert egress.log("m1") == ()


@pytest.mark.parametrize(
    ("operator", "targets", "where", "reason"),
    [
        ([], ["127.0.0.1:9"], "127.0.0.1:9", "operator's allow-list"),
        (["*:*"], [], "127.0.0.1:9", "not among the targets"),
        (["*:*"], ["127.0.0.1:8"], "127.0.0.1:9", "not among the targets"),
        (["*:*"], ["127.0.0.1:9"], "127.0.0.1:9", "address of the host itself"),
        (["*:9"], ["localhost:9"], "localhost:9", "address of the host itself"),
        (["127.0.0.1:8"], ["127.0.0.1:9"], "127.0.0.1:9", "operator's allow-list"),
        (["*:*"], ["169.254.169.254:80"], "169.254.169.254:80", "a link-local address"),
        (
            ["169.254.169.254:80"],
            ["169.254.169.254:80"],
            "169.254.169.254:80",
            "a link-local address",
        ),
        (["*:*"], ["2852039166:80"], "2852039166:80", "a link-local address"),
        (["*:*"], ["[::ffff:a9fe:a9fe]:80"], "[::ffff:a9fe:a9fe]:80", "a link-local address"),
        (["*:*"], ["[fd00:ec2::254]:80"], "[fd00:ec2::254]:80", "a metadata service"),
        (["*:*"], ["0:80"], "0:80", "no address of a host"),
    ],
)
def test_what_is_refused_is_told_and_kept(
    operator: list[str], targets: list[str], where: str, reason: str
) -> None:
    egress = proxy(operator)
    answer = ask(egress, tuple(targets), connect(where))
    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert reason.encode() in answer
    assert logged(egress) == [(where, "refused")]
    assert reason in egress.log("m1")[0]["why"]


@pytest.mark.parametrize("listens_on", ["localhost", "127.0.0.1", "0.0.0.0"])  # noqa: S104
def test_the_control_plane_is_refused_by_its_address(target: Target, listens_on: str) -> None:
    where = f"127.0.0.1:{target.port}"
    egress = proxy(["127.0.0.1:*"], never=["no.invalid:1", f"{listens_on}:{target.port}"])
    assert b"control plane" in ask(egress, (where,), connect(where))
    assert logged(egress) == [(where, "refused")]


def test_what_was_checked_is_what_is_connected_to(target: Target) -> None:
    """A name that resolves to another address at each look leads nowhere else than to the one that was checked."""
    looks = iter(["127.0.0.1", "169.254.169.254"])
    where = f"changing.internal:{target.port}"
    egress = proxy(
        [where, f"127.0.0.1:{target.port}"],
        resolver=lambda _host, _port: [ipaddress.ip_address(next(looks))],
    )
    assert ask(egress, (where,), connect(where) + b"x").endswith(b"\r\n\r\nX")
    assert b"a link-local address" in ask(egress, (where,), connect(where))


def test_a_name_that_leads_to_one_bad_address_leads_nowhere(target: Target) -> None:
    both = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("fe80::1")]
    where = f"two.internal:{target.port}"
    listed = [where, f"127.0.0.1:{target.port}"]
    egress = proxy(listed, resolver=lambda _host, _port: both)
    assert b"403" in ask(egress, (where,), connect(where))


def test_a_fault_of_an_allowed_target_is_no_refusal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    where = f"127.0.0.1:{free}"
    egress = proxy(["127.0.0.1:*", "*.invalid:1"])
    assert ask(egress, (where,), connect(where)).startswith(b"HTTP/1.1 502 ")
    assert ask(egress, ("no.invalid:1",), connect("no.invalid:1")).startswith(b"HTTP/1.1 502 ")
    assert logged(egress) == [(where, "connection_refused"), ("no.invalid:1", "unresolved")]


def test_a_reset_by_an_allowed_target_is_kept() -> None:
    def reset() -> None:
        connection, _ = server.accept()
        connection.recv(100)
        # Zero seconds to linger: closing is a reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        egress = proxy([where])
        resetting = threading.Thread(target=reset)
        resetting.start()
        ask(egress, (where,), connect(where) + b"hello", hang_up=False)
        resetting.join(PATIENCE_S)
    assert logged(egress) == [(where, "reset")]


def answers(data: bytes) -> list[tuple[str, str]]:
    """What is kept of a target that answers a plain request with this, and closes: (what, why)."""

    def answer() -> None:
        connection, _ = server.accept()
        with closing(connection):
            connection.settimeout(PATIENCE_S)
            assert connection.recv(4096)
            connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        egress = proxy([where])
        answering = threading.Thread(target=answer)
        answering.start()
        asked = f"GET http://{where}/ HTTP/1.1\r\n\r\n".encode()
        assert ask(egress, (where,), asked, hang_up=False) == data
        answering.join(PATIENCE_S)
    return [(line["what"], line["why"].partition(": ")[2]) for line in egress.log("m1")]


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (b"", "it closed without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-", "after 25 bytes of its answer"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
            "after 43 bytes of its answer, 6 more were announced",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            "after 56 bytes of its answer",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "after 25 bytes of its answer"),
    ],
)
def test_a_target_that_was_gone_before_its_answer_was_whole_is_kept(data: bytes, seen: str) -> None:
    assert answers(data) == [("gone", seen)]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfull",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfull",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfull\r\n0\r\n\r\n",
        b"HTTP/1.0 500 Oops\r\n\r\nuntil it closes",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n",
        b"it speaks something else",
    ],
)
def test_a_whole_answer_is_no_fault_whatever_it_says(data: bytes) -> None:
    assert answers(data) == []


def test_a_machine_that_breaks_off_is_no_fault_of_its_target() -> None:
    def listen() -> None:
        connection, _ = server.accept()
        with closing(connection):
            connection.settimeout(PATIENCE_S)
            while connection.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        egress = proxy([where])
        listening = threading.Thread(target=listen)
        listening.start()
        half = f"POST http://{where}/ HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf".encode()
        ask(egress, (where,), half)
        listening.join(PATIENCE_S)
    assert egress.log("m1") == ()


def test_each_line_says_when_it_was_on_the_clock_of_commands() -> None:
    egress = EgressProxy(Reach().dial, boot_ns=lambda: 42)
    egress.was_away("m1", ("a:1",))
    times = [(line["since_boot_ns"], line["at_boot_ns"]) for line in egress.log("m1")]
    assert times == [("0", "42")]


def test_a_proxy_that_was_away_is_kept_as_a_fault() -> None:
    egress = proxy([])
    egress.was_away("m1", ("a:1", "b:2"))
    assert logged(egress) == [("a:1", "proxy_away"), ("b:2", "proxy_away")]


def test_a_broken_request_is_answered_and_not_kept() -> None:
    egress = proxy(["*:*"])
    assert ask(egress, (), b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert ask(egress, (), b"half a head") == b""
    assert egress.log("m1") == ()


def test_only_the_last_lines_are_kept_and_for_each_machine() -> None:
    egress = proxy([])
    for port in range(1, 71):
        ask(egress, (), connect(f"a:{port}"))
    assert [line["target"] for line in egress.log("m1")] == [f"a:{port}" for port in range(7, 71)]
    assert egress.log("m2") == ()
    egress.forget("m1")
    egress.forget("m1")
    assert egress.log("m1") == ()


def test_a_machine_that_is_gone_keeps_no_connection_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        egress = proxy([where])
        ours, theirs = socket.socketpair()
        serving = threading.Thread(target=egress.serve, args=("m1", Channel(theirs), (where,)))
        serving.start()
        ours.sendall(connect(where))
        silent, _ = server.accept()
        silent.settimeout(PATIENCE_S)
        ours.recv(4096)
        ours.close()
        egress.forget("m1")
        serving.join(PATIENCE_S)
        assert not serving.is_alive()
        assert silent.recv(1) == b""
        silent.close()


def test_a_program_that_asks_again_and_again_for_what_it_may_not_have_hides_no_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
    egress = proxy(["127.0.0.1:*"])
    ask(egress, (where,), connect(where))
    for _ in range(100):
        ask(egress, (where,), connect("telemetry.invalid:443"))
    what = [line["what"] for line in egress.log("m1")]
    assert (what[0], what.count("refused")) == ("connection_refused", 64)


def test_what_a_connection_notes_when_its_machine_is_forgotten_is_kept_of_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        egress = proxy([where])
        ours, theirs = socket.socketpair()
        serving = threading.Thread(target=egress.serve, args=("m1", Channel(theirs), (where,)))
        serving.start()
        with ours:
            ours.sendall(f"GET http://{where}/ HTTP/1.1\r\n\r\n".encode())
            server.settimeout(PATIENCE_S)
            asked, _ = server.accept()
            with closing(asked):
                asked.recv(4096)
                egress.forget("m1")
                serving.join(PATIENCE_S)
    assert not serving.is_alive()
    assert egress.log("m1") == ()
