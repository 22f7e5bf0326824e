"""A quote is the most that a step costs, whatever befalls it; `python -m bench quotes` does the same ten times over."""

from __future__ import annotations

from bench.quotes import Kept, judged, kept_quotes

STEPS, SEED = 20, 1


def test_no_step_costs_more_than_its_quote_and_no_fork_more_than_it_was_funded() -> None:
    kept = kept_quotes(STEPS, SEED)

    result = judged(kept, SEED)
    assert [claim.what for claim in result.claims if not claim.holds] == []
    # What was drawn is worth the name of a trial: ends of many kinds, and caps that bind.
    assert len({outcome for step in kept for outcome in step.outcomes}) >= 5
    assert sum(step.by_quoted > 0.99 for step in kept) >= 3
    assert all(step.actual_micros >= 0 < step.quoted_micros for step in kept)


def test_the_same_seed_is_the_same_course() -> None:
    assert kept_quotes(3, seed=5) == kept_quotes(3, seed=5) != kept_quotes(3, seed=6)


def test_a_step_above_its_quote_would_be_told() -> None:
    honest = Kept(100, 100, 100, (1.0, 0.995), frozenset({"capped"}))
    for dishonest in (
        Kept(101, 100, 200, (), frozenset()),
        Kept(100, 101, 100, (), frozenset()),
        Kept(100, 100, 200, (1.01,), frozenset()),
        Kept(100, 100, 200, (0.98,), frozenset()),
    ):
        assert all(claim.holds for claim in judged((honest,), SEED).claims)
        assert [c.holds for c in judged((honest, dishonest), SEED).claims].count(False) == 1
