"""The control ports of a host: who hears what, and how a loss is told."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.errors import EnvironmentFault, FailureKind
from infra.guest import faults, wire
from infra.guest.control import ControlLoop, ControlPort

PATIENCE_S = 10.0


class Guest:
    """The other end of one control port."""

    def __init__(self, loop: ControlLoop, name: str) -> None:
        ours, theirs = socket.socketpair()
        self.heard: queue.Queue[wire.Line] = queue.Queue()
        self.socket = theirs
        self.port = loop.attach(name, ours, self.heard.put)

    def says(self, *lines: str) -> None:
        self.socket.sendall("".join(f"{line}\n" for line in lines).encode())

    def verbs(self, count: int) -> list[str]:
        return [self.heard.get(timeout=PATIENCE_S).verb for _ in range(count)]


@pytest.fixture
def losses() -> queue.Queue[str]:
    return queue.Queue()


@pytest.fixture
def loop(losses: queue.Queue[str]) -> Iterator[ControlLoop]:
    made = ControlLoop(losses.put)
    yield made
    made.close()
    made.close()


@pytest.fixture
def guest(loop: ControlLoop) -> Iterator[Guest]:
    made = Guest(loop, "m1")
    yield made
    made.socket.close()


def is_pong(number: int, port: ControlPort, timeout_s: float = PATIENCE_S) -> wire.Line:
    def match(line: wire.Line) -> wire.Line | None:
        return line if line.verb == "PONG" and line.number("n") == number else None

    return port.ask(wire.ping(number), match, timeout_s)


def test_an_answer_goes_to_who_asked(guest: Guest) -> None:
    guest.says("PONG n=1", "PONG n=2", "NOISE")
    guest.verbs(3)
    with pytest.raises(EnvironmentFault) as silent:
        is_pong(2, guest.port, timeout_s=0.01)
    assert silent.value.kind is FailureKind.GUEST_HUNG
    assert guest.socket.recv(100) == b"PING n=2\n"


def test_many_ask_at_once(guest: Guest) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(is_pong, number, guest.port) for number in range(8)]
        asked = guest.socket.makefile("rb")
        for _ in range(8):
            guest.says(asked.readline().decode().strip().replace("PING", "PONG"))
        asked.close()
        assert [answer.result().number("n") for answer in answers] == list(range(8))


def test_broken_lines_are_skipped_and_the_next_is_heard(guest: Guest) -> None:
    guest.socket.sendall(b"half \xff\x00\n\n\nlower x=1\nGOOD\n")
    assert guest.verbs(1) == ["GOOD"]


def test_a_line_over_the_limit_is_dropped_with_its_rest(guest: Guest) -> None:
    guest.socket.sendall(b"ENDED id=" + b"x" * (3 * wire.LINE_LIMIT) + b" PONG n=1\nGOOD\n")
    assert guest.verbs(1) == ["GOOD"]


def test_a_line_may_come_byte_by_byte(guest: Guest) -> None:
    for byte in b"PONG n=1\n":
        guest.socket.sendall(bytes([byte]))
    assert guest.heard.get(timeout=PATIENCE_S) == wire.Line("PONG", {"n": "1"})


def test_a_loss_is_told_once_and_to_all_who_wait(guest: Guest, losses: queue.Queue[str]) -> None:
    guest.socket.shutdown(socket.SHUT_RDWR)
    assert losses.get(timeout=PATIENCE_S) == "m1"
    with pytest.raises(EnvironmentFault) as lost:
        is_pong(1, guest.port)
    assert lost.value.kind is FailureKind.GUEST_LOST
    assert guest.port.is_lost
    assert losses.empty()


def test_a_machine_that_dies_while_asked_is_lost_not_hung(guest: Guest) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(is_pong, 1, guest.port)
        guest.socket.recv(100)
        guest.socket.close()
        with pytest.raises(EnvironmentFault) as lost:
            answer.result(PATIENCE_S)
    assert lost.value.kind is FailureKind.GUEST_LOST


def test_one_that_we_hang_up_on_is_no_news(
    loop: ControlLoop, guest: Guest, losses: queue.Queue[str]
) -> None:
    other = Guest(loop, "m2")
    loop.detach(guest.port)
    assert guest.socket.recv(100) == b""
    other.says("GOOD")
    assert other.verbs(1) == ["GOOD"]
    assert losses.empty()
    other.socket.close()
    assert losses.get(timeout=PATIENCE_S) == "m2"


def test_after_the_end_nothing_is_attached(losses: queue.Queue[str]) -> None:
    loop = ControlLoop(losses.put)
    loop.close()
    guest = Guest(loop, "m1")
    assert guest.port.is_lost
    assert guest.socket.recv(1) == b""
    guest.socket.close()


def test_a_socket_far_down_is_reached(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    with pytest.raises(EnvironmentFault) as missing:
        faults.connect("m1", directory / "control.sock")
    assert missing.value.kind is FailureKind.GUEST_LOST
    with socket.socket(socket.AF_UNIX) as server:
        short = tmp_path / "s"
        short.symlink_to(directory)
        server.bind(str(short / "control.sock"))
        server.listen(1)
        faults.connect("m1", directory / "control.sock").close()
