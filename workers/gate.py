"""How many may do one kind of work at once, and how a bell that comes too many is told from one that is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Gate:
    """At most `width` inside, at most `width` waiting. Who comes then may go: those that wait will see their rows.

    This is what makes dropping a bell safe: it was rung after its rows were saved, and whoever waits here has not read
    the rows yet.
    """

    def __init__(self, width: int) -> None:
        self._inside = threading.Semaphore(width)
        self._places = threading.Semaphore(2 * width)

    def run(self, act: Callable[[], object]) -> bool:
        """Do it when there is room; False if there was no place even to wait."""
        if not self._places.acquire(blocking=False):
            return False
        try:
            with self._inside:
                act()
        finally:
            self._places.release()
        return True
