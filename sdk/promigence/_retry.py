"""When to send a request again, and how long a call may take in all. Pure: the clock and the dice are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from promigence._protocol import Answer, Broken, Reply, retry_after_seconds
from promigence.errors import PromigenceError


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on a clock; every part of a call, retries and pauses included, is done before it."""

    clock: Callable[[], float]
    at: float

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float]) -> Deadline:
        return cls(clock, clock() + seconds)

    def left(self) -> float:
        return max(0.0, self.at - self.clock())

    def within(self, seconds: float) -> Deadline:
        """The nearer of this deadline and one that many seconds from now."""
        return Deadline(self.clock, min(self.at, self.clock() + seconds))


@dataclass(frozen=True, slots=True)
class Retries:
    """Exponential backoff with jitter; never sooner than the server asked for.

    `first_contact_seconds` bounds the patience with an address where nothing has answered yet: a server that was
    never started is told of soon, one that restarts is waited for.
    """

    base_seconds: float = 0.25
    most_seconds: float = 8.0
    first_contact_seconds: float = 4.0

    def pause_seconds(self, attempt: int, asked_seconds: float | None, chance: float) -> float:
        """How long to wait after this attempt (from 1); `chance` in [0, 1) spreads clients over half of it."""
        doubled: float = self.base_seconds * 2.0 ** min(attempt - 1, 16)
        backoff = min(self.most_seconds, doubled)
        return (asked_seconds or 0.0) + backoff * (0.5 + chance / 2)


def worth_another_try(reply: Reply, error: PromigenceError) -> bool:
    """Connection faults, 429 and 502 to 504, and whatever the server itself calls retryable."""
    if isinstance(reply, Broken):
        return reply.retryable
    return error.retryable or reply.status in (429, 502, 503, 504)


def asked_pause(reply: Reply) -> float | None:
    return retry_after_seconds(reply) if isinstance(reply, Answer) else None
