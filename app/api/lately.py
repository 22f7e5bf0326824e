"""What was said a moment ago, and need not be said again: who floods us must flood neither log nor rows."""

from __future__ import annotations

from collections.abc import Hashable

_REMEMBERED = 10_000


class Lately:
    """Which of many were noted in the last `seconds`. Of this process alone, and of bounded memory."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._noted: dict[Hashable, float] = {}

    def is_new(self, what: Hashable, now_s: float) -> bool:
        """Whether this was not noted within that time; if so it is now."""
        if now_s - self._noted.get(what, float("-inf")) < self._seconds:
            return False
        if len(self._noted) >= _REMEMBERED:
            self._noted.clear()
        self._noted[what] = now_s
        return True
