"""A host's wall clock that is stepped moves no money, no limit and no outcome: it is for people."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.fakes.clock import ManualClock
from tests.flow.stage import Stage, spec

HOUR_NS = 3_600_000_000_000


class Stepped:
    """The stage's clock, its wall clock so far off. The database's own stays as it is: it is another machine's."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.off_ns = 0
        self.boot_ns, self.boot_id, self.pause = clock.boot_ns, clock.boot_id, clock.pause

    def wall_ns(self) -> int:
        return self._clock.wall_ns() + self.off_ns


@pytest.mark.parametrize(
    ("text", "step_ns"),
    [("20s exit 7", HOUR_NS), ("20s exit 0", -HOUR_NS), ("90s exit 0", HOUR_NS)],
)
def test_a_step_of_the_wall_clock_changes_nothing(suite: Stage, text: str, step_ns: int) -> None:
    clock = Stepped(suite.clock)
    suite.ports = replace(suite.ports, clock=clock)
    undisturbed = ended(suite, suite.start(spec(text)))
    run_id = suite.start(spec(text))
    suite.run_for(5, 2.5)
    clock.off_ns = step_ns
    suite.run_for(5, 2.5)
    clock.off_ns = -step_ns
    assert ended(suite, run_id) == undisturbed
    assert ended(suite, suite.start(spec(text))) == undisturbed, "a run that begins under it"


def ended(suite: Stage, run_id: str) -> Any:
    """What a run came to: its totals, what each fork was and took, and whether it stayed within its limits."""
    for _ in range(200):
        if suite.report(run_id)["final"]:
            break
        suite.run_for(2.5, 2.5)
    page = suite.report(run_id)
    assert page["environment_failures"] == []
    forks = [(fork["outcome"], fork["reward"], fork["seconds"]) for fork in page["forks"]]
    return page["totals"], forks, page["cost"]["total_usd"]
