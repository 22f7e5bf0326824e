"""What a measure gives: many numbers of one kind, and what is claimed of them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Timed = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Unit:
    """What a figure's numbers are: how they are named in JSON, to how many decimals, and how a person is shown them."""

    suffix: str
    decimals: int
    shown: str
    scale: float
    shown_decimals: int


SECONDS = Unit("_seconds", 5, "ms", 1000, 1)
RATIO = Unit("", 6, "ratio", 1, 4)


@dataclass(frozen=True, slots=True)
class Figure:
    """Numbers of one kind, at least one, in the order in which they were taken."""

    name: str
    values: tuple[float, ...]
    unit: Unit = SECONDS

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def p90(self) -> float:
        """The smallest that at least nine of ten do not exceed."""
        return self._least_above(0.9)

    @property
    def p99(self) -> float:
        """The smallest that at least 99 of a hundred do not exceed; of fewer than a hundred, the largest."""
        return self._least_above(0.99)

    @property
    def spread(self) -> dict[str, float]:
        """The numbers that stand for all, by what they are."""
        return {
            "min": min(self.values),
            "median": self.median,
            "p90": self.p90,
            "p99": self.p99,
            "max": max(self.values),
        }

    def as_dict(self) -> dict[str, object]:
        """The JSON shape: a count, and the spread; seconds to the hundredth of a millisecond."""
        unit = self.unit
        spread = {
            f"{name}{unit.suffix}": round(value, unit.decimals)
            for name, value in self.spread.items()
        }
        return {"n": len(self.values), **spread}

    def as_row(self) -> tuple[str, ...]:
        """The same for a person."""
        unit = self.unit
        spread = (f"{v * unit.scale:,.{unit.shown_decimals}f}" for v in self.spread.values())
        return (f"{self.name}, {unit.shown}", str(len(self.values)), *spread)

    def _least_above(self, part: float) -> float:
        return sorted(self.values)[math.ceil(len(self.values) * part) - 1]


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
