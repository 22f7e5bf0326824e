"""What a measure gives: durations of one thing, and what is claimed of them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Timed = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Figure:
    """Durations of one thing in seconds, at least one, in the order in which they were taken."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p90(self) -> float:
        """The smallest that at least nine of ten do not exceed."""
        return sorted(self.seconds)[math.ceil(len(self.seconds) * 0.9) - 1]

    def as_dict(self) -> dict[str, object]:
        """The JSON shape: a count, and seconds to the hundredth of a millisecond."""
        return {
            "n": len(self.seconds),
            "min_seconds": round(min(self.seconds), 5),
            "median_seconds": round(self.median, 5),
            "p90_seconds": round(self.p90, 5),
            "max_seconds": round(max(self.seconds), 5),
        }


@dataclass(frozen=True, slots=True)
class Claim:
    """One number made of figures, and the bound that it was promised to keep."""

    what: str
    value: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the number is within its bounds."""
        low, high = self.at_least, self.at_most
        return (low is None or self.value >= low) and (high is None or self.value <= high)

    def as_dict(self) -> dict[str, object]:
        """The JSON shape."""
        return {
            "what": self.what,
            "value": round(self.value, 3),
            "at_most": self.at_most,
            "at_least": self.at_least,
            "holds": self.holds,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """`about` says what was measured: image, shape, what is and is not in the time."""

    about: dict[str, object]
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...] = field(default=())


def ratio(what: str, above: Figure, below: Figure, **bounds: float) -> Claim:
    """The medians of two figures, one by the other."""
    return Claim(what, above.median / below.median, **bounds)


def rounds(most: int, within_s: float, least: int = 1) -> Iterator[int]:
    """The numbers 0 to `most` - 1; of those from `least` on, none whose round would end too late.

    A round is taken to last as long as the longest so far.
    """
    began = before = time.monotonic()
    longest = 0.0
    for number in range(most):
        now = time.monotonic()
        longest, before = max(longest, now - before), now
        if number >= least and now + longest > began + within_s:
            return
        yield number


def interleaved(
    one: Timed, other: Timed, most: int, within_s: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of both in turn, so that whatever else the machine does falls on both; who goes first alternates.

    The first pair fills caches for both and is not counted.
    """
    taken: dict[Timed, list[float]] = {one: [], other: []}
    for number in rounds(most + 1, within_s, least=2):
        for timed in (one, other) if number % 2 else (other, one):
            seconds = timed()
            if number:
                taken[timed].append(seconds)
    return tuple(taken[one]), tuple(taken[other])
