"""Ways to where nobody may go: each spelling, each detour, each second request. A stolen key lists them all itself."""

from __future__ import annotations

import ipaddress
import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from infra.egress import EgressProxy, Reach
from infra.egress.addresses import Address, resolve
from tests.unit.test_egress_proxy import PATIENCE_S, Channel, Target, ask, connect, logged

METADATA = "169.254.169.254"
NUMBERS = (
    *("169.254.169.254", "169.254.169.254.", "2852039166", "0xa9fea9fe", "0XA9FEA9FE", "025177524776"),
    *("0251.0376.0251.0376", "0xa9.0xfe.0xa9.0xfe", "169.254.43518", "169.16689662", "0251.254.0xa9fe"),
    *("[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[::FFFF:A9FE:A9FE]", "[0:0:0:0:0:ffff:a9fe:a9fe]"),
    *("[::169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a9fe:a9fe]", "[::ffff:0:169.254.169.254]"),
    *("[2002:a9fe:a9fe::1]", "[2001:0:a9fe:a9fe::]", "[2001:0:808:808::5601:5601]", "[fe80::5efe:a9fe:a9fe]"),
    *("[2001:db8::5efe:169.254.169.254]", "[fe80::1]", "[fd00:ec2::254]", "[FD00:0EC2:0:0::254]"),
    *("0", "0.0.0.0", "0x0", "[::]", "[::ffff:0:0]", "255.255.255.255", "224.0.0.1", "[ff02::1]"),  # noqa: S104 - nobody binds them
    # This host itself, which nobody lists here.
    *("127.0.0.1", "127.1", "2130706433", "0x7f.1", "localhost", "localhost.", "[::1]", "[::ffff:127.0.0.1]"),
)  # fmt: skip
NO_NAMES = (
    *("[fe80::1%lo]", "[fe80::1%25lo]", "fe80::1", "fd00:ec2::254", "[169.254.169.254]", "[]", "[::1"),
    *("user@169.254.169.254", "a:b@169.254.169.254", "policy.internal@169.254.169.254"),
    *("169.254.169.254%00", "169.254.169.254%2e", "%31%36%39.254.169.254", "169.254.169.254%0a"),
    *("169.254.169.254/x", "169.254.169.254#x", "169.254.169.254?x", "169.254.169.254\\x", "*", "*.internal"),
    *("\uff11\uff16\uff19.254.169.254", "\u2460\u2465\u2468.254.169.254", "169\u3002254\u3002169\u3002254"),
    *("169.254.169.254\0", "169.254.169.254\0.internal", "169.254.169.254 .internal", "a..b", "-a", ""),
)  # fmt: skip
# What these names lead to, by whatever records.
NAMES = {
    "cname.internal": [METADATA],
    "v6.internal": ["fd00:ec2::254"],
    "mapped.internal": ["::ffff:169.254.169.254"],
    "one-of-two.internal": ["192.0.2.7", METADATA],
    "two-of-two.internal": [METADATA, "192.0.2.7"],
    "this-host.internal": ["127.0.0.1"],
}


def looked_up(host: str, port: int) -> list[Address]:
    if host in NAMES:
        return [ipaddress.ip_address(address) for address in NAMES[host]]
    return resolve(host, port)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where anything was connected to: nowhere."""
    made: list[str] = []

    def never(address: tuple[str, int], timeout: float) -> socket.socket:
        made.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr("infra.egress.reach.socket.create_connection", never)
    return made


def forms(host: str) -> tuple[bytes, ...]:
    raw = host.encode("latin-1", "ignore") if host.isascii() else host.encode()
    return (
        b"CONNECT " + raw + b":80 HTTP/1.1\r\n\r\n",
        b"GET http://" + raw + b":80/latest/meta-data/ HTTP/1.1\r\nHost: policy.internal\r\n\r\n",
    )


@pytest.mark.parametrize("host", [*NUMBERS, *NAMES])
def test_no_spelling_and_no_name_leads_there(host: str, connected: list[str]) -> None:
    egress = EgressProxy(Reach(["*:*"], resolver=looked_up).dial)
    for form in forms(host):
        answer = ask(egress, (f"{host}:80",), form)
        assert answer.startswith(b"HTTP/1.1 403 "), (form, answer)
    assert connected == []
    assert [what for _, what in logged(egress)] == ["refused", "refused"]


@pytest.mark.parametrize("host", NO_NAMES)
def test_what_is_no_name_is_no_request(host: str, connected: list[str]) -> None:
    egress = EgressProxy(Reach(["*:*"], resolver=looked_up).dial)
    for targets in ((f"{host}:80",), (f"{METADATA}:80",)):
        for form in forms(host):
            answer = ask(egress, targets, form)
            assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 "))
    assert connected == []


@pytest.fixture
def target() -> Iterator[Target]:
    made = Target()
    yield made
    made.close()


def allowing(*targets: str) -> EgressProxy:
    return EgressProxy(Reach(targets).dial)


def test_a_redirect_is_the_machines_affair_and_asked_for_again_it_is_checked_again() -> None:
    said = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"

    def redirect() -> None:
        connection, _ = server.accept()
        with closing(connection):
            connection.recv(4096)
            connection.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        redirecting = threading.Thread(target=redirect)
        redirecting.start()
        egress = allowing(where, "169.254.169.254:80")
        got = ask(egress, (where,), f"GET http://{where}/ HTTP/1.1\r\n\r\n".encode(), hang_up=False)
        redirecting.join(PATIENCE_S)
    assert got == said
    assert egress.log("m1") == (), "nothing was asked for in its name"
    for form in forms(METADATA):
        assert ask(egress, (where, f"{METADATA}:80"), form).startswith(b"HTTP/1.1 403 ")
        assert ask(egress, (where,), form).startswith(b"HTTP/1.1 403 ")


def test_a_name_is_looked_up_once_a_connection(target: Target) -> None:
    looks: list[str] = []

    def changing(host: str, _port: int) -> list[Address]:
        looks.append(host)
        return [ipaddress.ip_address("127.0.0.1" if len(looks) == 1 else METADATA)]

    where = f"changing.internal:{target.port}"
    egress = EgressProxy(Reach([where, f"127.0.0.1:{target.port}"], resolver=changing).dial)
    assert ask(egress, (where,), connect(where) + b"x").endswith(b"\r\n\r\nX")
    assert looks == ["changing.internal"]


def test_another_port_of_an_allowed_host_is_another_target(target: Target) -> None:
    where = f"127.0.0.1:{target.port}"
    other = f"127.0.0.1:{target.port % 65535 + 1}"
    assert ask(allowing(where, other), (where,), connect(other)).startswith(b"HTTP/1.1 403 ")
    assert ask(allowing(where), (where, other), connect(other)).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    ("head", "after"),
    [
        ("GET http://{where}/ HTTP/1.1\r\n\r\n", "GET http://169.254.169.254/ HTTP/1.1\r\n\r\n"),
        ("GET http://{where}/ HTTP/1.1\r\n\r\n", "CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n"),
        (
            "POST http://{where}/ HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: evil\r\n\r\n",
        ),
        (
            "POST http://{where}/ HTTP/1.1\r\nConnection: keep-alive\r\nProxy-Connection: keep-alive\r\n\r\n",
            "GET http://{where}/2 HTTP/1.1\r\n\r\n",
        ),
    ],
)
def test_a_kept_connection_carries_no_second_request(target: Target, head: str, after: str) -> None:
    where = f"127.0.0.1:{target.port}"
    egress = allowing(where)
    said = (head + after).format(where=where).encode()
    ask(egress, (where,), said, hang_up=False)
    (seen,) = target.seen
    assert seen.count(b" HTTP/1.1\r\n") == 1
    assert b"evil" not in seen
    assert b"169.254" not in seen
    assert b"Connection: close" in seen
    assert b"keep-alive" not in seen


def test_a_tunnel_leads_to_its_target_whatever_is_said_in_it(target: Target) -> None:
    where = f"127.0.0.1:{target.port}"
    again = b"CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n"
    answer = ask(allowing(where), (where,), connect(where) + again)
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n" + again.upper()
    assert target.seen == [again]


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Content-Length: 4\r\nContent-Length: 5",
        "Content-Length: 4, 5",
        "Content-Length: +4",
        "Content-Length: 0x4",
        "Content-Length: \u0664",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding:\x0bchunked",
        "Transfer-Encoding : chunked",
        " Transfer-Encoding: chunked",
        "X: y\rTransfer-Encoding: chunked",
        "X: y\nTransfer-Encoding: chunked",
        "Transfer-Encoding: xchunked",
        "X\0: y",
    ],
)
def test_a_request_that_two_readers_could_read_in_two_ways_goes_nowhere(
    lines: str, connected: list[str]
) -> None:
    said = f"POST http://a.internal/ HTTP/1.1\r\n{lines}\r\n\r\nbody"
    egress = allowing("a.internal:80")
    assert ask(egress, ("a.internal:80",), said.encode()).startswith(b"HTTP/1.1 400 ")
    assert connected == []


def test_a_head_that_drips_is_not_waited_for() -> None:
    """Each byte comes in time, and the head as a whole does not: a second passes for each look at the clock."""
    moments = itertools.count(0, 10**9)
    egress = EgressProxy(Reach().dial, boot_ns=lambda: next(moments))
    ours, theirs = socket.socketpair()
    channel = Dripping(theirs)
    with ours:
        egress.serve("m1", channel, ())
    assert 20 <= channel.read_bytes <= 30


class Dripping(Channel):
    """A machine that says one byte at a time, each within the patience of one read."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.read_bytes = 0
        self.recv = self._drip

    def _drip(self, _size: int, _flags: int = 0) -> bytes:
        self.read_bytes += 1
        return b"G"
