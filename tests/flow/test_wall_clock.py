"""The host's wall clock is set while machines live: it is for people and guests, and nothing is decided by it.

The real one is left alone: time namespaces move CLOCK_BOOTTIME and never CLOCK_REALTIME. What a step does to SQLite's
own clock is in `tests/contract/test_store_engine.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.ports import Clock
from tests.flow.stage import Stage, spec


class Stepped:
    """A host's clocks, of which somebody set the wall clock."""

    def __init__(self, clock: Clock, step_ns: int) -> None:
        self._clock, self._step_ns = clock, step_ns

    def boot_ns(self) -> int:
        return self._clock.boot_ns()

    def wall_ns(self) -> int:
        return self._clock.wall_ns() + self._step_ns

    def boot_id(self) -> str:
        return self._clock.boot_id()

    def pause(self, seconds: float) -> None:
        self._clock.pause(seconds)


@pytest.mark.parametrize("step_s", [3600, -3600, 86_400 * 400])
def test_a_step_of_the_wall_clock_ends_nothing_and_costs_nothing(suite: Stage, step_s: int) -> None:
    untouched = suite.start(spec("20s exit 3", count=2))
    suite.run_for(3)
    plain = suite.run_until_final(untouched)
    run_id = suite.start(spec("20s exit 3", count=2))
    suite.run_for(3)
    suite.ports = replace(suite.ports, clock=Stepped(suite.clock, step_s * 10**9))
    during = suite.start(spec("1s exit 0", count=2, verify_each=True))
    page = suite.run_until_final(run_id)
    assert page["totals"]["failed"] == 2
    assert page["environment_failures"] == []
    assert [each["seconds"] for each in page["forks"]] == [20.0, 20.0]
    assert page["cost"] == plain["cost"]
    # Who comes up afterwards is told the time that the host has now, and agrees with it.
    later = suite.run_until_final(during)
    assert later["totals"]["passed"] == 2
    assert later["environment_failures"] == []
