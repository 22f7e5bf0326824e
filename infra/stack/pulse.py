"""How a supervisor hears that a process of its own runs: a byte a second, through a pipe that the process inherited.
Where systemd is the supervisor, a message a second to its socket (sd_notify(3)).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

# Says a word; whether anybody may still listen.
Mouth = Callable[[bytes], bool]

ALIVE, DRAINING = b".", b"d"
_HEARD_BYTES = 4096


def pipe() -> tuple[int, int]:
    """(ear, mouth): neither ever waits, and only who is handed the mouth inherits it."""
    return os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)


def beat(mouth: int, word: bytes) -> bool:
    """Say it; whether anybody may still listen. An ear that hears nothing for long has heard enough."""
    try:
        os.write(mouth, word)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def piped(mouth: int) -> Mouth:
    """To who holds the other end of this pipe."""
    return lambda word: beat(mouth, word)


def notified(address: str) -> Mouth:
    """To systemd, at the address that it gives a unit of `Type=notify`. That a process drains, its status says."""
    # A name that begins with @ is of no file: in the kernel it begins with a zero.
    at = f"\0{address[1:]}" if address.startswith("@") else address

    def say(word: bytes) -> bool:
        status = "drains: it ends when what it holds has ended" if word == DRAINING else "works"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
            try:
                out.sendto(f"READY=1\nWATCHDOG=1\nSTATUS={status}".encode(), at)
            except BlockingIOError:
                return True
            except OSError:
                return False
        return True

    return say


def heard(ear: int) -> bytes:
    """What was said since the last time; nothing, if nothing was or the mouth is closed."""
    try:
        return os.read(ear, _HEARD_BYTES)
    except BlockingIOError:
        return b""
