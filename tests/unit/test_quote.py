"""Quotes, rates and the money of a build."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.account import Project
from app.domain.build_price import divide, price_build
from app.domain.machine import Accelerator, Shape
from app.domain.money import NS_PER_SECOND, cost_micros
from app.domain.quote import (
    Binding,
    Bound,
    Concurrency,
    Priced,
    Quote,
    Timing,
    concurrency,
    price,
    smallest_cap_micros,
)
from app.domain.rates import Basis, Price, Rate, RateCard
from app.domain.run import ExecSpec
from app.domain.snapshot import Definition
from app.errors import BadRequest, Conflict

SECOND = NS_PER_SECOND
SHAPE = Shape(1, 512, 4)
RATE = Rate(36_000, Basis.COMMITTED, "v1")
FREE = Project("default", "2026-11")


def limited(left: int) -> Project:
    """A project with so much left: most of its budget is committed."""
    return replace(FREE, monthly_budget_micros=1_000_000, committed_micros=1_000_000 - left)


def timing(command_s: int = 60, retries: int = 2, rerun: bool = False) -> Timing:
    return Timing(command_s * SECOND, 0, 10 * SECOND, retries, rerun)


def quoted(count: int, cap: int, limits: Timing, project: Project = FREE) -> Quote:
    groups = (Priced("s@1", count, SHAPE, limits),)
    return price("q", groups, cap, RATE, Concurrency(count, 1, 1), Accelerator.TCG, 0, project)


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


def test_a_cap_at_the_worst_case_is_never_too_small() -> None:
    """Four forks of a second's work and one of a minute's: five equal shares of what that one needs are more."""
    short, long = timing(1, retries=0), timing(60, retries=0)
    groups = (Priced("s@1", 4, SHAPE, short), Priced("l@1", 1, SHAPE, long))
    worst = 4 * short.worst_micros(36_000) + long.worst_micros(36_000)
    assert worst == (4 * 41 + 100) * 10
    # Its smallest lease is 70 s: 700 micro-dollars, five times.
    assert smallest_cap_micros(groups, RATE) == worst < 5 * 700

    at = Concurrency(5, 1, 1)
    made = price("q", groups, worst, RATE, at, Accelerator.TCG, 0, FREE)
    assert made.budget_micros == worst
    with pytest.raises(BadRequest, match="smallest cap that works"):
        price("q", groups, worst - 1, RATE, at, Accelerator.TCG, 0, FREE)


@given(st.integers(1, 500), st.integers(1, 20_000), st.integers(0, 5), st.booleans())
def test_the_smallest_cap_is_exact(count: int, command_s: int, retries: int, rerun: bool) -> None:
    limits = timing(command_s, retries, rerun)
    smallest = smallest_cap_micros((Priced("s@1", count, SHAPE, limits),), RATE)
    assert quoted(count, smallest, limits).budget_micros <= smallest
    with pytest.raises(BadRequest, match="smallest cap that works"):
        quoted(count, smallest - 1, limits)


@pytest.mark.parametrize(
    ("cap", "left", "budget", "binding"),
    [
        (10**9, None, 7200, Binding.WORST_CASE),
        (7200, 7200, 7200, Binding.WORST_CASE),
        (7199, 7199, 7199, Binding.SPEND_CAP),
        (7199, 7198, 7198, Binding.PROJECT_BUDGET),
        (10**9, 7199, 7199, Binding.PROJECT_BUDGET),
    ],
)
def test_the_least_of_three_limits_binds(
    cap: int, left: int | None, budget: int, binding: Binding
) -> None:
    quote = quoted(4, cap, timing(), FREE if left is None else limited(left))
    assert (quote.budget_micros, quote.binding) == (budget, binding)
    assert quote.as_dict()["max_cost_usd"] == budget / 1_000_000
    assert quote.as_dict()["limits"] == {
        "binding": binding.value,
        "project_left_usd": None if left is None else left / 1_000_000,
        "project_max_forks": None,
        "project_live_forks": 0,
    }
    assert quote.funded_ns == min(100, budget // 40) * SECOND


@given(st.integers(1, 500), st.integers(1, 20_000), st.integers(0, 5))
def test_what_a_project_must_have_left_is_exact(count: int, command_s: int, retries: int) -> None:
    limits = timing(command_s, retries)
    smallest = smallest_cap_micros((Priced("s@1", count, SHAPE, limits),), RATE)
    enough = replace(FREE, monthly_budget_micros=smallest)
    assert quoted(count, 10**12, limits, enough).budget_micros == smallest
    with pytest.raises(Conflict) as refused:
        quoted(count, 10**12, limits, replace(enough, committed_micros=1))
    assert refused.value.code == "project_budget_exhausted"
    assert refused.value.details["needed_usd"] == smallest / 1_000_000
    with pytest.raises(BadRequest, match="smallest cap that works"):
        quoted(count, smallest - 1, limits, replace(enough, committed_micros=1))


@pytest.mark.parametrize(
    ("requested", "most", "live", "expected"),
    [
        (10, None, 0, Concurrency(10, 16, 9, Bound.REQUEST)),
        (17, None, 0, Concurrency(17, 16, 9, Bound.HOSTS)),
        (17, 16, 0, Concurrency(17, 16, 9, Bound.HOSTS)),
        (17, 15, 0, Concurrency(17, 15, 9, Bound.PROJECT)),
        (10, 10, 3, Concurrency(10, 10, 7, Bound.REQUEST)),
        (10, 3, 3, Concurrency(10, 3, 0, Bound.PROJECT)),
    ],
)
def test_the_least_of_three_limits_bounds_how_many_run_at_once(
    requested: int, most: int | None, live: int, expected: Concurrency
) -> None:
    project = replace(FREE, max_forks=most, live_forks=live)
    assert concurrency(requested, 16, 9, project) == expected


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
    priced = price_build(given_cap, RATE, FREE)
    assert priced.template_grant_micros + 3 * priced.fork_grant_micros <= priced.budget_micros
    assert priced.fork_grant_micros >= priced.fork_smallest_micros
    assert priced.template_grant_micros >= cost_micros(180 * SECOND, 36_000)
    with pytest.raises(BadRequest, match="needs a spend_cap"):
        price_build(Definition("s", "debian-12", SHAPE, test, cap_micros=100), RATE, FREE)


def test_a_build_has_no_more_than_its_project_has_left() -> None:
    test = ExecSpec(("true",), timeout_ns=300 * SECOND)
    definition = Definition("s", "debian-12", SHAPE, test, cap_micros=20_000)
    smallest = 180 * 10 + 3 * 60 * 10
    priced = price_build(definition, RATE, limited(smallest + 100))
    assert priced.budget_micros == smallest + 100
    assert (priced.template_grant_micros, priced.fork_grant_micros) == (180 * 10, 60 * 10 + 33)
    assert priced.template_grant_micros + 3 * priced.fork_grant_micros <= priced.budget_micros
    assert divide(definition, RATE, priced.budget_micros) == priced
    with pytest.raises(Conflict) as refused:
        price_build(definition, RATE, limited(smallest - 1))
    assert refused.value.code == "project_budget_exhausted"
