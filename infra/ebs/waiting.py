"""Waits with an end: for the cloud while it is away or slows us down, and for what it does after it has answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from app.errors import Unavailable
from app.ports.world import Clock

# No call is begun again when it has failed for so long.
AWAY_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0
_SECOND_NS = 1_000_000_000

T = TypeVar("T")


def patiently(clock: Clock, call: Callable[[], T]) -> T:
    """The answer of a call that may be made twice; Unavailable when the cloud has been away for `AWAY_S`."""
    over_ns, pause_s = clock.boot_ns() + int(AWAY_S * _SECOND_NS), _FIRST_PAUSE_S
    while True:
        try:
            return call()
        except Unavailable:
            if clock.boot_ns() >= over_ns:
                raise
        clock.pause(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def until(clock: Clock, look: Callable[[], T | None], within_s: float) -> T | None:
    """What `look` finds as soon as it finds something; None when the time is over. It looks once at least."""
    over_ns, pause_s = clock.boot_ns() + int(within_s * _SECOND_NS), _FIRST_PAUSE_S
    while True:
        found = patiently(clock, look)
        if found is not None or clock.boot_ns() >= over_ns:
            return found
        clock.pause(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
