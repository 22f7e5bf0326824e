"""Micro-dollars: one rounding, upward, and its inverse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.money import NS_PER_HOUR, affordable_ns, cost_micros, micros_of_usd, usd
from app.errors import BadRequest

DURATIONS = st.integers(0, 40 * NS_PER_HOUR)
RATES = st.integers(1, 50_000_000)


@given(DURATIONS, RATES)
def test_rounding_is_up_by_less_than_one(duration_ns: int, rate: int) -> None:
    exact = duration_ns * rate
    charged = cost_micros(duration_ns, rate) * NS_PER_HOUR
    assert exact <= charged < exact + NS_PER_HOUR


@given(st.integers(0, 10**12), RATES)
def test_what_money_affords_costs_no_more_and_nothing_longer_does(micros: int, rate: int) -> None:
    longest = affordable_ns(micros, rate)
    assert cost_micros(longest, rate) <= micros
    assert cost_micros(longest + 1, rate) > micros


def test_an_hour_costs_its_rate_and_one_nanosecond_costs_one() -> None:
    assert cost_micros(NS_PER_HOUR, 50_000) == 50_000
    assert cost_micros(1, 50_000) == 1
    assert cost_micros(0, 50_000) == 0


@pytest.mark.parametrize("bad", [0, -1, "nan", float("inf"), 1e12, "x", None, True, 1e-9])
def test_bad_amounts(bad: object) -> None:
    with pytest.raises(BadRequest):
        micros_of_usd("spend_cap", bad)


@given(st.integers(1, 10**14))
def test_usd_and_back(micros: int) -> None:
    assert micros_of_usd("spend_cap", usd(micros)) == micros
