"""Micro-dollars: one rounding, upward, and its inverse."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.money import (
    NS_PER_HOUR,
    affordable_ns,
    cost_micros,
    exact_micros_of_usd,
    micros_of_usd,
    usd,
    usd_text,
)
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


NO_AMOUNTS: list[object] = [
    *(0, -1, 0.0, -0.5, 1e12, 10**400, 10**5000, 100_000_000.01, 1e-9),
    *(float("nan"), float("inf"), -math.inf, Decimal("sNaN"), Decimal("Infinity")),
    *(Decimal("1e999999"), Decimal("1e-999999")),
    *(None, True, False, [], {}, b"1", 1j),
    # As texts: no words, no exponents, no digits of other scripts, nothing that only Python reads as a number.
    *("", " ", "nan", "inf", "1e3", "-1", "+1", "1_000", " 1", "1\n", "1,5", "0x10", ".5", "5."),
    *("\uff11", "\u0661", "1" * 31, "0", "0.0000001"),
]


@pytest.mark.parametrize("bad", NO_AMOUNTS, ids=range(len(NO_AMOUNTS)))
def test_what_is_no_amount_is_refused_by_its_name(bad: object) -> None:
    for read in (micros_of_usd, exact_micros_of_usd):
        with pytest.raises(BadRequest, match="spend_cap") as refused:
            read("spend_cap", bad)
        assert refused.value.details == {"field": "spend_cap"}


@pytest.mark.parametrize(
    ("amount", "micros"),
    [
        (1, 1_000_000),
        (0.1, 100_000),
        ("0.10", 100_000),
        ("007.50", 7_500_000),
        (1e-06, 1),
        (100_000_000, 10**14),
        # Never rounded up, however near it is: a cap is not widened.
        (0.0000019, 1),
        (Decimal("0." + "9" * 60), 999_999),
    ],
)
def test_a_cap_is_rounded_down(amount: object, micros: int) -> None:
    assert micros_of_usd("spend_cap", amount) == micros


def test_a_price_is_never_rounded() -> None:
    assert exact_micros_of_usd("rate", Decimal("0.8467000")) == 846_700
    for amount in (0.0000019, "0.1234567", Decimal("0." + "9" * 60)):
        with pytest.raises(BadRequest, match="rate must have at most six decimals"):
            exact_micros_of_usd("rate", amount)


@given(st.integers(1, 10**14))
def test_usd_and_back(micros: int) -> None:
    assert micros_of_usd("spend_cap", usd(micros)) == micros
    assert micros_of_usd("spend_cap", usd_text(micros)) == micros


def test_usd_in_a_text_has_no_exponent() -> None:
    assert [usd_text(micros) for micros in (0, 23, 1_500_000, 10**13)] == [
        "0.0",
        "0.000023",
        "1.5",
        "10000000.0",
    ]
