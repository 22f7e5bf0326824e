"""Quotes, rates and the money of a build."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.build_price import price_build
from app.domain.machine import Accelerator, Shape
from app.domain.money import NS_PER_SECOND, cost_micros
from app.domain.quote import Concurrency, Priced, Timing, price, smallest_cap_micros
from app.domain.rates import Basis, Price, Rate, RateCard
from app.domain.run import ExecSpec
from app.domain.snapshot import Definition
from app.errors import BadRequest

SECOND = NS_PER_SECOND
SHAPE = Shape(1, 512, 4)
RATE = Rate(36_000, Basis.COMMITTED, "v1")


def timing(command_s: int = 60, retries: int = 2, rerun: bool = False) -> Timing:
    return Timing(command_s * SECOND, 0, 10 * SECOND, retries, rerun)


def quoted(count: int, cap: int, limits: Timing):  # type: ignore[no-untyped-def]
    groups = (Priced("s@1", count, SHAPE, limits),)
    return price("q", groups, cap, RATE, Concurrency(count, 1, 1), Accelerator.TCG, 0)


def test_the_worst_case_in_words() -> None:
    # 30 s to restore, 10 s of test, 60 s of command; twice more 40 s for replacements; 10 micro-dollars a second
    assert timing().worst_micros(36_000) == (30 + 10 + 60 + 2 * 40) * 10
    assert timing(rerun=True).worst_micros(36_000) == (100 + 2 * 100) * 10


def test_the_quote_says_worst_case_or_cap_whichever_is_less() -> None:
    assert quoted(4, 10**9, timing()).budget_micros == 4 * 1800
    capped = quoted(4, 4000, timing())
    assert capped.budget_micros == 4000
    assert capped.funded_ns == 100 * SECOND
    assert capped.as_dict()["max_cost_usd"] == 0.004


@given(st.integers(1, 500), st.integers(1, 20_000), st.integers(0, 5), st.booleans())
def test_the_smallest_cap_is_exact(count: int, command_s: int, retries: int, rerun: bool) -> None:
    limits = timing(command_s, retries, rerun)
    smallest = smallest_cap_micros((Priced("s@1", count, SHAPE, limits),), RATE)
    assert quoted(count, smallest, limits).budget_micros <= smallest
    with pytest.raises(BadRequest, match="smallest cap that works"):
        quoted(count, smallest - 1, limits)


def test_a_shape_costs_what_the_cheapest_that_holds_it_costs() -> None:
    card = RateCard(
        "v1",
        (
            Price(Shape(1, 1024, 8), 20_000, 30_000),
            Price(Shape(2, 4096, 16), 50_000, 70_000),
        ),
    )
    assert card.rate(SHAPE).micros_per_hour == 20_000
    assert card.rate(Shape(1, 2048, 4)).micros_per_hour == 50_000
    with pytest.raises(BadRequest, match="no price"):
        card.rate(Shape(4, 512, 4))


def test_a_builds_money_is_divided_under_its_cap() -> None:
    test = ExecSpec(("true",), timeout_ns=300 * SECOND)
    given_cap = Definition("s", "debian-12", SHAPE, test, cap_micros=20_000)
    priced = price_build(given_cap, RATE)
    assert priced.template_grant_micros + 3 * priced.fork_grant_micros <= priced.budget_micros
    assert priced.fork_grant_micros >= priced.fork_smallest_micros
    assert priced.template_grant_micros >= cost_micros(180 * SECOND, 36_000)
    with pytest.raises(BadRequest, match="needs a spend_cap"):
        price_build(Definition("s", "debian-12", SHAPE, test, cap_micros=100), RATE)
