"""Projects: months, what is left of a limit, and what a limit may be changed to."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.account import (
    Account,
    Limits,
    Project,
    budget_exhausted,
    check_limits,
    check_name,
    max_forks_of,
    month_end_ns,
    month_of,
    month_start_ns,
)
from app.domain.money import NS_PER_SECOND
from app.errors import BadRequest, Conflict

PROJECT = Project("lab", "2026-12", 5_000_000, 4_000_000, max_forks=8, live_forks=3)


def test_a_month_is_of_utc_and_ends_where_the_next_begins() -> None:
    last_ns = int(datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * NS_PER_SECOND
    assert month_of(last_ns + 999_999_999) == "2026-12"
    assert month_of(last_ns + NS_PER_SECOND) == "2027-01"
    assert month_end_ns("2026-12") == last_ns + NS_PER_SECOND == month_start_ns("2027-01")


@given(st.integers(0, 4_000_000_000 * NS_PER_SECOND))
def test_every_instant_is_in_its_month(wall_ns: int) -> None:
    month = month_of(wall_ns)
    assert month_start_ns(month) <= wall_ns < month_end_ns(month)
    assert month_of(month_end_ns(month) - 1) == month != month_of(month_end_ns(month))


def test_what_is_left_is_what_nobody_holds() -> None:
    assert (PROJECT.left_micros, PROJECT.free_forks) == (1_000_000, 5)
    free = Project("lab", "2026-12", committed_micros=7, live_forks=3)
    assert (free.left_micros, free.free_forks) == (None, None)


def test_an_account_adds_up() -> None:
    assert Account(PROJECT, charged_micros=1_500_000).as_dict() == {
        "project": "lab",
        "month": "2026-12",
        "resets_at": "2027-01-01T00:00:00.000Z",
        "monthly_budget_usd": 5.0,
        "charged_usd": 1.5,
        "reserved_usd": 2.5,
        "left_usd": 1.0,
        "max_forks": 8,
        "live_forks": 3,
    }


def test_who_is_refused_learns_what_is_left_and_when_it_is_more() -> None:
    refused = budget_exhausted(PROJECT, 1_000_001)
    assert (refused.code, refused.status, refused.retryable) == (
        "project_budget_exhausted",
        409,
        False,
    )
    assert refused.details == {
        "project_left_usd": 1.0,
        "needed_usd": 1.000001,
        "monthly_budget_usd": 5.0,
        "resets_at": "2027-01-01T00:00:00.000Z",
    }


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"monthly_budget_micros": 4_000_000, "max_forks": 3}, None),
        ({"monthly_budget_micros": None, "max_forks": None}, None),
        ({}, None),
        ({"monthly_budget_micros": 3_999_999}, "budget_committed"),
        ({"max_forks": 2}, "forks_are_live"),
    ],
)
def test_a_limit_is_not_below_what_is_given_out(changes: Limits, code: str | None) -> None:
    if code is None:
        check_limits(PROJECT, changes)
        return
    with pytest.raises(Conflict) as refused:
        check_limits(PROJECT, changes)
    assert refused.value.code == code
    assert refused.value.details in ({"committed_usd": 4.0}, {"live_forks": 3})


@pytest.mark.parametrize("told", ["1", "20", "1000000"])
def test_a_limit_of_forks_is_a_whole_number(told: str) -> None:
    assert max_forks_of(told) == int(told)


@pytest.mark.parametrize(
    "told",
    ["0", "-1", "1.5", "1e3", "", "ten", "1000001", "9" * 5000, "\u0663", " 3", "007", "nan"],
)
def test_what_is_no_limit_of_forks_is_refused(told: str) -> None:
    with pytest.raises(BadRequest, match="max_forks must be a whole number from 1 to 1000000"):
        max_forks_of(told)


def test_names_are_such_as_a_file_could_have() -> None:
    for good in ("default", "Lab-7", "a.b_c", "x" * 64):
        assert check_name(good) == good
    for bad in ("", "x" * 65, "a b", "a/b", "caf\u00e9", "a\n", "a\0"):
        with pytest.raises(BadRequest, match="a project's name"):
            check_name(bad)
