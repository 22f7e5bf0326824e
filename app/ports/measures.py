"""Who is told how long things took."""

from __future__ import annotations

from typing import Protocol

from app.domain.measure import Step


class Measures(Protocol):
    """Keeps what a process measures, for whoever asks it. Never raises, never waits."""

    def took(self, step: Step, duration_ns: int) -> None:
        """A step took so long; a negative reading counts as nothing."""
        ...


class Unmeasured:
    """`Measures` where nobody asks."""

    def took(self, step: Step, duration_ns: int) -> None:
        """Forgotten at once."""
