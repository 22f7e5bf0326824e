"""A clock that moves when it is told to."""

from __future__ import annotations

import threading

START_WALL_NS = 1_800_000_000_000_000_000


class ManualClock:
    """Boot and wall time advance together, by `advance` alone."""

    def __init__(self, boot_id: str = "00000000-0000-4000-8000-000000000001") -> None:
        self._boot_id = boot_id
        self._now_ns = 1_000_000_000
        self._lock = threading.Lock()

    def boot_ns(self) -> int:
        return self._now_ns

    def wall_ns(self) -> int:
        return START_WALL_NS + self._now_ns

    def boot_id(self) -> str:
        return self._boot_id

    def pause(self, seconds: float) -> None:
        """Whoever waits here moves the clocks."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move both clocks on."""
        with self._lock:
            self._now_ns += int(seconds * 1e9)
