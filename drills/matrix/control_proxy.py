"""Somebody on the wire between a worker and a guest's control port, who changes what the one tells the other.

A machine's `control.sock` is there from before its hypervisor starts until it is dead, and its worker connects only
when the machine is restored. In between the proxy puts a socket of its own in its place. Lines that no rule changes
go through as they are, so a machine that is tampered with works in every other respect.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from drills.matrix.scene import NotCaused, Scene
from infra.qemu.home import connect, listen

# What becomes of one line: itself, another, several, or nothing. It has no end of line.
Rule = Callable[[bytes], bytes | None]

_POLL_S = 0.01
_CONNECT_S = 5.0
_CHUNK_BYTES = 65536


def untouched(line: bytes) -> bytes:
    """The rule that changes nothing."""
    return line


def field(line: bytes, name: str) -> bytes:
    """The value of `name=...` in a line; nothing where there is none."""
    for word in line.split(b" "):
        if word.startswith(name.encode() + b"="):
            return word.partition(b"=")[2]
    return b""


def with_field(line: bytes, name: str, value: bytes) -> bytes:
    """The line with another value for `name`."""
    words = line.split(b" ")
    start = name.encode() + b"="
    return b" ".join(start + value if word.startswith(start) else word for word in words)


@dataclass(frozen=True, slots=True)
class Tampering:
    """What is done to the lines of one machine: those that it is told, and those that it says."""

    told: Rule = untouched
    said: Rule = untouched


@contextlib.contextmanager
def tampering(scene: Scene, how: Callable[[int], Tampering]) -> Iterator[None]:
    """On the wire of every machine of the case's forks that starts while the block runs; `how` gets a fork's number."""
    proxy = _Proxy(scene, how)
    thread = threading.Thread(target=proxy.run, name=f"proxy-{scene.case_name}")
    thread.start()
    try:
        yield
    finally:
        proxy.over.set()
        thread.join()
        proxy.hang_up()


class _Proxy:
    def __init__(self, scene: Scene, how: Callable[[int], Tampering]) -> None:
        self._scene = scene
        self._how = how
        self._known = set(_names(scene.rig.machines))
        self._servers: list[socket.socket] = []
        self._accepting: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._carrying: list[threading.Thread] = []
        self.over = threading.Event()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            # A machine is restored in a tenth of a second: whoever is late has shown nothing.
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        while not self.over.wait(_POLL_S):
            for name in _names(self._scene.rig.machines) - self._known:
                home = self._scene.rig.machines / name
                if (home / "control.sock").exists():
                    self._known.add(name)
                    self._meet(name, home)

    def hang_up(self) -> None:
        """End all connections, and the threads that carry them; those that accept first, so that no more come."""
        _end(self._servers, self._accepting)
        _end(self._sockets, self._carrying)

    def _meet(self, name: str, home: Path) -> None:
        number = self._scene.number_of(name)
        if number is None:
            return
        with contextlib.suppress(FileNotFoundError):
            self._stand_between(home, self._how(number))

    def _stand_between(self, home: Path, how: Tampering) -> None:
        server = listen(home / "proxy.sock")
        self._servers.append(server)
        (home / "control.sock").rename(home / "guest.sock")
        (home / "proxy.sock").rename(home / "control.sock")
        arguments = (server, home / "guest.sock", how)
        self._accepting.append(_started(self._accept, *arguments))

    def _accept(self, server: socket.socket, guest: Path, how: Tampering) -> None:
        """Whoever holds the machine connects; after a worker's crash another does."""
        with contextlib.suppress(OSError):
            while True:
                above, _ = server.accept()
                self._sockets.append(above)
                below = connect(guest, _CONNECT_S)
                self._sockets.append(below)
                below.settimeout(None)
                self._carrying += [
                    _started(_carry, above, below, how.told),
                    _started(_carry, below, above, how.said),
                ]


def _started(target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread


def _end(sockets: Iterable[socket.socket], threads: Iterable[threading.Thread]) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()
    for each in sockets:
        each.close()


def _carry(source: socket.socket, sink: socket.socket, rule: Rule) -> None:
    """Line by line, until one side hangs up or a rule gives up; then the other is hung up on, too."""
    rest = b""
    with contextlib.suppress(OSError, NotCaused):
        while chunk := source.recv(_CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                changed = rule(line)
                if changed is not None:
                    sink.sendall(changed + b"\n")
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _names(machines: Path) -> set[str]:
    with contextlib.suppress(FileNotFoundError):
        return {entry.name for entry in os.scandir(machines)}
    return set()
