"""Laws 1 to 8 of the cap, after every step of what may happen to a cluster; at length in `test_ledger_proof.py`."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.ledger.events import EVENTS, wind_down
from tests.ledger.laws import check
from tests.ledger.programs import PROGRAMS, SETTINGS, play
from tests.ledger.world import Chance, World


@settings(SETTINGS, max_examples=300)
@given(PROGRAMS)
def test_the_laws_hold_in_short_programs(program: bytes) -> None:
    play(program)


class Cluster(RuleBasedStateMachine):
    """The same events as steps that hypothesis chooses and shrinks one by one.

    It takes several times as long for a step as a program does, so most of the proof is programs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(event=st.sampled_from(sorted(EVENTS)), choices=st.integers(0, 2**40))
    def happens(self, event: str, choices: int) -> None:
        EVENTS[event](self.world, Chance(choices))

    @invariant()
    def laws_hold(self) -> None:
        check(self.world)

    def teardown(self) -> None:
        wind_down(self.world)
        check(self.world)


TestCluster = Cluster.TestCase
TestCluster.settings = settings(SETTINGS, max_examples=100)
