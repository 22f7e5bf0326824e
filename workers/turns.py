"""One thing at a time for each machine: who ends it must not meet another who finds it ending."""

from __future__ import annotations

import threading
from collections.abc import Callable

Act = Callable[[], object]


class Turns:
    """Acts by key, one after another. Who finds a key taken leaves his act to whoever has it, and goes.

    The rows' fence tells worker processes apart, not the threads of one: two that collect the same machine would each
    hold the claim, and the second would see the first one's killing as a loss. An act that waits already is not left
    twice: it has not looked at the rows yet.
    """

    def __init__(self) -> None:
        self._left: dict[str, dict[str, Act]] = {}
        self._lock = threading.Lock()

    def take(self, key: str, name: str, act: Act) -> None:
        """Do it now, or leave it to the thread that is at this key. An error ends the turn; what was left is lost."""
        with self._lock:
            if key in self._left:
                self._left[key][name] = act
                return
            self._left[key] = {name: act}
        try:
            while (due := self._next(key)) is not None:
                due()
        except BaseException:
            with self._lock:
                del self._left[key]
            raise

    def _next(self, key: str) -> Act | None:
        with self._lock:
            left = self._left[key]
            if not left:
                del self._left[key]
                return None
            return left.pop(next(iter(left)))
