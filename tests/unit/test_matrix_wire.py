"""What the fault matrix breaks things with: somebody on a control port's wire, and servers that fail as networks do."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from drills.matrix import policy
from drills.matrix.control_proxy import Tampering, field, tampering, with_field
from drills.matrix.scene import NotCaused, Scene
from infra.qemu.home import connect, listen

PATIENCE_S = 10.0
AWAKE = b"AWAKE nonce=aa boot_id=bb reseeded=1"


class OnStage:
    """What a proxy asks of a scene: its rig's machines, and whose machine one is."""

    case_name = "wire"

    def __init__(self, machines: Path, numbers: dict[str, int | None]) -> None:
        self.machines = machines
        self.numbers = numbers

    @property
    def rig(self) -> OnStage:
        return self

    def number_of(self, name: str) -> int | None:
        return self.numbers[name]


def test_fields_of_a_line_are_found_and_changed() -> None:
    assert field(AWAKE, "boot_id") == b"bb"
    assert field(AWAKE, "boot") == b""
    assert with_field(AWAKE, "nonce", b"cc") == b"AWAKE nonce=cc boot_id=bb reseeded=1"
    assert with_field(AWAKE, "other", b"cc") == AWAKE


def test_what_is_told_and_said_is_changed_on_the_way(tmp_path: Path) -> None:
    how = Tampering(
        told=lambda line: None if line == b"WAKE" else line,
        said=lambda line: with_field(line, "nonce", b"cc"),
    )
    with tampered(tmp_path, {"att_1": 0}, how), guest(tmp_path, "att_1") as seen:
        with worker(tmp_path, "att_1") as control:
            control.sendall(b"WAKE\nPING\n")
            assert read_line(control) == b"AWAKE nonce=cc boot_id=bb reseeded=1"
        assert seen == [b"PING"]


def test_another_machines_wire_is_left_alone(tmp_path: Path) -> None:
    broken = Tampering(told=lambda _: None)
    with tampered(tmp_path, {"att_2": None}, broken), guest(tmp_path, "att_2") as seen:
        with closing(connect(tmp_path / "att_2" / "control.sock", PATIENCE_S)) as control:
            control.sendall(b"WAKE\n")
            assert read_line(control) == AWAKE
        assert seen == [b"WAKE"]


def test_a_rule_that_gives_up_hangs_up(tmp_path: Path) -> None:
    def gives_up(line: bytes) -> bytes:
        raise NotCaused(line.decode())

    how = Tampering(said=gives_up)
    with (
        tampered(tmp_path, {"att_1": 0}, how),
        guest(tmp_path, "att_1"),
        worker(tmp_path, "att_1") as control,
    ):
        control.sendall(b"WAKE\n")
        assert control.recv(100) == b""


@pytest.mark.parametrize("name", ["guest.sock", "control.sock"])
def test_nothing_of_a_proxy_keeps_a_directory_from_being_removed(tmp_path: Path, name: str) -> None:
    with (
        tampered(tmp_path, {"att_1": 0}, Tampering()),
        guest(tmp_path, "att_1"),
        worker(tmp_path, "att_1"),
    ):
        assert (tmp_path / "att_1" / name).is_socket()
        for path in (tmp_path / "att_1").iterdir():
            path.unlink()
        (tmp_path / "att_1").rmdir()


def test_one_server_answers_and_the_others_fail_as_networks_do() -> None:
    with policy.serving() as servers:
        assert fetch(servers["POLICY"]) == b"yes"
        assert fetch(servers["POLICY"]) == b"yes"
        assert fetch(servers["POLICY_GONE"]) == b"yes"
        wait_for(lambda: isinstance(failure(servers["POLICY_GONE"]), ConnectionRefusedError))
        assert isinstance(failure(servers["POLICY_REFUSED"]), ConnectionRefusedError)
        assert isinstance(failure(servers["POLICY_RESET"]), ConnectionResetError)
    assert isinstance(failure(servers["POLICY"]), ConnectionRefusedError)


@contextmanager
def guest(root: Path, name: str) -> Iterator[list[bytes]]:
    """A control port that answers each line by AWAKE; what it heard."""
    heard: list[bytes] = []
    (root / name).mkdir()
    listening = listen(root / name / "control.sock")

    def serve() -> None:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection:
            while line := read_line(connection):
                heard.append(line)
                connection.sendall(AWAKE + b"\n")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield heard
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(PATIENCE_S)


def tampered(
    root: Path, numbers: dict[str, int | None], how: Tampering
) -> AbstractContextManager[None]:
    """Somebody on the wires of these machines."""
    return tampering(cast(Scene, OnStage(root, numbers)), lambda _: how)


@contextmanager
def worker(root: Path, name: str) -> Iterator[socket.socket]:
    """A worker's connection, once somebody stands between."""
    wait_for((root / name / "guest.sock").exists)
    with closing(connect(root / name / "control.sock", PATIENCE_S)) as control:
        yield control


def read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            return b""
        line += byte
    return line[:-1]


def fetch(address: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}/", timeout=PATIENCE_S) as answer:
        return cast(bytes, answer.read())


def failure(address: str) -> Any:
    """How a plain connection fails, by the error that the system gives."""
    host, _, port = address.partition(":")
    try:
        with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return connection.recv(100)
    except OSError as error:
        return error


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)
