"""The bench's own arithmetic: what is counted, in which order, and when a claim holds."""

from __future__ import annotations

import pytest

from bench.figures import RATIO, Claim, Figure, interleaved, ratio, rounds


def test_a_figure_tells_count_and_spread() -> None:
    figure = Figure("exec", tuple(number / 1000 for number in range(20, 0, -1)))

    assert figure.as_dict() == {
        "n": 20,
        "min_seconds": 0.001,
        "median_seconds": 0.0105,
        "p90_seconds": 0.018,
        "p99_seconds": 0.02,
        "max_seconds": 0.02,
    }


def test_a_figure_says_what_its_numbers_are() -> None:
    seconds, ratios = Figure("exec", (0.001, 0.0025)), Figure("part", (0.25, 1.0), RATIO)

    assert seconds.as_row() == ("exec, ms", "2", "1.0", "1.8", "2.5", "2.5", "2.5")
    assert ratios.as_row() == ("part, ratio", "2", "0.2500", "0.6250", "1.0000", "1.0000", "1.0000")
    assert ratios.as_dict() == {
        "n": 2,
        "min": 0.25,
        "median": 0.625,
        "p90": 1.0,
        "p99": 1.0,
        "max": 1.0,
    }


def test_the_ninety_ninth_of_a_hundred_is_not_the_largest() -> None:
    hundred = tuple(float(number) for number in range(1, 101))

    assert Figure("late", hundred).p99 == 99.0
    assert Figure("late", (*hundred, 101.0)).p99 == 100.0


def test_of_one_duration_everything_is_that_one() -> None:
    assert set(Figure("cold", (3.0,)).as_dict().values()) == {1, 3.0}


def test_a_claim_holds_up_to_its_bound() -> None:
    assert Claim("ratio", 2.0, at_most=2.0).holds
    assert not Claim("ratio", 2.01, at_most=2.0).holds
    assert Claim("speed", 10.0, at_least=10.0).holds
    assert not Claim("speed", 9.9, at_least=10.0).holds


def test_a_ratio_is_of_medians() -> None:
    above, below = Figure("ours", (1.0, 3.0, 100.0)), Figure("bare", (0.1, 2.0, 2.5))

    claim = ratio("ours by bare", above, below, at_most=2.0)

    assert claim.value == 1.5
    assert claim.holds


def test_both_are_taken_in_turn_and_the_first_pair_is_not_counted() -> None:
    order: list[str] = []

    def timed(name: str) -> float:
        order.append(name)
        return float(len(order))

    ours, bare = interleaved(lambda: timed("ours"), lambda: timed("bare"), 3, within_s=60)

    assert order == ["bare", "ours", "ours", "bare", "bare", "ours", "ours", "bare"]
    assert ours == (3.0, 6.0, 7.0)
    assert bare == (4.0, 5.0, 8.0)


def test_rounds_stop_before_the_one_that_would_end_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("bench.figures.time.monotonic", lambda: now)
    done = []
    for number in rounds(100, within_s=10):
        done.append(number)
        now += 4 if number == 1 else 2

    # 2 + 4 + 2 seconds are over, and one more may take 4.
    assert done == [0, 1, 2]


def test_what_is_least_is_made_whatever_it_takes() -> None:
    assert list(rounds(3, within_s=0)) == [0]
    assert list(rounds(3, within_s=0, least=2)) == [0, 1]
