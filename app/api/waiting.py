"""Long polls: read the row, and wait for a wake-up rather than on a thread; the row decides, never the wake-up."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.ports import Wakes

T = TypeVar("T")

# A row is read again at least this often: a wake-up may be lost.
REREAD_S = 1.0


async def until(
    wakes: Wakes,
    about: str,
    read: Callable[[], Awaitable[T]],
    done: Callable[[T], bool],
    wait_s: float,
) -> T:
    """What `read` gives once `done` holds of it, or what it gives when `wait_s` are over."""
    deadline = time.monotonic() + wait_s
    while True:
        # Listening anew for each reading: a wake-up between reading and waiting is not missed, an old one not heard.
        async with wakes.listening(about) as waiter:
            seen = await read()
            left_s = deadline - time.monotonic()
            if done(seen) or left_s <= 0:
                return seen
            await waiter.wait(min(left_s, REREAD_S))
