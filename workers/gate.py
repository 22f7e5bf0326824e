"""How many may do one kind of work at once, and how a bell that comes too many is told from one that is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Gate:
    """At most `width` inside, at most `width` waiting. Who comes then may go: those that wait will see their rows.

    This is what makes dropping a bell safe: it was rung after its rows were saved, and whoever waits here has not read
    the rows yet.
    """

    def __init__(self, width: int) -> None:
        self._inside = threading.Semaphore(width)
        self._places = threading.Semaphore(2 * width)
        self._busy = 0
        self._lock = threading.Lock()

    def run(self, act: Callable[[], object]) -> bool:
        """Do it when there is room; False if there was no place even to wait."""
        if not self._places.acquire(blocking=False):
            return False
        try:
            with self._counted(), self._inside:
                act()
        finally:
            self._places.release()
        return True

    @property
    def is_idle(self) -> bool:
        """Whether nobody is inside, and nobody waits."""
        return self._busy == 0

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1
