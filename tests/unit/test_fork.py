"""The states of a fork: a table that is whole, and the documentation drawn from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.domain.fork import MOVES, OUTCOMES, EndReason, ForkState, Outcome, move, reward
from app.errors import Conflict
from docs.states import drawing

PAGE = Path(__file__).parents[2] / "docs" / "fork-states.md"


def test_every_state_has_a_row_and_every_reason_an_outcome() -> None:
    assert set(MOVES) == set(ForkState)
    assert set(OUTCOMES) == set(EndReason)
    assert set(OUTCOMES.values()) == set(Outcome)


def test_every_state_is_reached_and_can_end() -> None:
    reached = {ForkState.QUEUED}
    for _ in ForkState:
        reached |= {new for old in reached for new in MOVES[old]}
    assert reached == set(ForkState)
    assert all(ForkState.ENDED in MOVES[state] for state in ForkState if state != ForkState.ENDED)
    assert MOVES[ForkState.ENDED] == frozenset()


@pytest.mark.parametrize("old", list(ForkState))
@pytest.mark.parametrize("new", list(ForkState))
def test_moves_that_are_not_in_the_table_are_refused(old: ForkState, new: ForkState) -> None:
    if new in MOVES[old]:
        assert move(old, new) is new
        return
    with pytest.raises(Conflict):
        move(old, new)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_measured_outcomes_carry_a_reward(outcome: Outcome) -> None:
    expected = {Outcome.PASSED: 1.0, Outcome.FAILED: 0.0, Outcome.TIMED_OUT: 0.0}.get(outcome)
    assert reward(outcome, None) == expected
    masked = outcome in (Outcome.ENV_FAILED, Outcome.CAPPED, Outcome.CANCELLED)
    assert reward(outcome, 0.5) == (None if masked else 0.5)


def test_the_page_shows_the_code() -> None:
    assert drawing() in PAGE.read_text(), (
        "run `python -m docs.states` and commit docs/fork-states.md"
    )
