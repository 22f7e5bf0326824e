"""One process at a time works on a bundle of this host; a lock goes with its process, however that ends."""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.ports.world import Clock

_LOOK_S = 0.25
_SECOND_NS = 1_000_000_000


class Locks:
    """A file that is nothing but locks: one byte of it for each bundle, so that none is left behind.

    They are of the open file (F_OFD_SETLK), and so hold between the threads of a process too.
    """

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    @contextmanager
    def held(self, name: str, wait_s: float) -> Iterator[bool]:
        """Inside, nobody else has this name; False when somebody had it for all that time."""
        fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield self._taken(fd, _place(name), wait_s)
        finally:
            os.close(fd)

    def _taken(self, fd: int, place: int, wait_s: float) -> bool:
        over_ns = self._clock.boot_ns() + int(wait_s * _SECOND_NS)
        while not _take(fd, place):
            if self._clock.boot_ns() >= over_ns:
                return False
            self._clock.pause(_LOOK_S)
        return True


def _take(fd: int, place: int) -> bool:
    wanted = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _place(name: str) -> int:
    """Two names at one place would only wait for each other."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
