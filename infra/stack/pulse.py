"""How a supervisor hears that a process of its own runs: a byte a second, through a pipe that the process inherited."""

from __future__ import annotations

import os

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


def heard(ear: int) -> bytes:
    """What was said since the last time; nothing, if nothing was or the mouth is closed."""
    try:
        return os.read(ear, _HEARD_BYTES)
    except BlockingIOError:
        return b""
