"""Grants, leases, charges, sharing: the arithmetic behind the cap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.ledger import Need, charge, equal_grants, lease_ns, may_close_by_time, share
from app.domain.money import NS_PER_SECOND, cost_micros

RATE = st.integers(1, 5_000_000)
NS = st.integers(0, 10**14)


@given(st.integers(1, 10**9), st.lists(st.integers(1, 10**8), min_size=1, max_size=50))
def test_grants_never_pass_the_budget_nor_a_forks_worst_case(
    budget: int, worsts: list[int]
) -> None:
    grants = equal_grants(budget, tuple(worsts))
    assert sum(grants) <= budget
    assert all(grant <= worst for grant, worst in zip(grants, worsts, strict=True))
    assert len({grant for grant, worst in zip(grants, worsts, strict=True) if grant < worst}) <= 1


@given(st.integers(0, 10**10), RATE, NS, NS)
def test_a_whole_lease_costs_no_more_than_its_grant(
    grant: int, rate: int, worst_ns: int, late_ns: int
) -> None:
    lease = lease_ns(grant, rate, worst_ns)
    split = charge(lease + late_ns, lease, None, rate, failed=False)
    assert split.total_micros <= grant


@given(NS, NS, st.none() | NS, RATE, st.booleans())
def test_the_parts_of_a_charge_are_the_whole(
    lived: int, lease: int, ready: int | None, rate: int, failed: bool
) -> None:
    split = charge(lived, lease, ready, rate, failed=failed)
    parts = (split.verification_micros, split.tasks_micros, split.environment_micros)
    assert sum(parts) == split.total_micros == cost_micros(min(lived, lease), rate)
    assert min(parts) >= 0
    assert failed == (split.environment_micros > 0) or split.total_micros == 0


def test_a_charge_in_words() -> None:
    second = NS_PER_SECOND
    split = charge(10 * second, 100 * second, 4 * second, 36_000, failed=False)
    assert (split.verification_micros, split.tasks_micros) == (40, 60)
    late = charge(500 * second, 100 * second, 4 * second, 36_000, failed=False)
    assert late.total_micros == 1000
    never_ready = charge(3 * second, 100 * second, None, 36_000, failed=False)
    assert (never_ready.verification_micros, never_ready.tasks_micros) == (30, 0)


NEEDS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=0, max_size=30
).map(lambda pairs: tuple(Need(f"f{n}", a, a + b) for n, (a, b) in enumerate(pairs)))


@given(st.integers(0, 10**8), NEEDS, RATE)
def test_sharing_stays_within_the_pool_and_within_every_need(
    pool: int, needs: tuple[Need, ...], rate: int
) -> None:
    added = share(pool, needs, rate)
    by_id = {need.fork_id: need for need in needs}
    assert sum(added.values()) <= pool
    for fork_id, part in added.items():
        assert 0 < part <= by_id[fork_id].worst_micros - by_id[fork_id].grant_micros


def test_sharing_is_even_and_fills_small_needs_first() -> None:
    needs = (Need("a", 0, 100), Need("b", 0, 1000), Need("c", 0, 1000))
    assert share(700, needs, 36_000) == {"a": 100, "b": 300, "c": 300}
    assert share(10_000, needs, 36_000) == {"a": 100, "b": 1000, "c": 1000}


def test_sharing_waits_until_it_is_worth_a_write() -> None:
    needs = (Need("a", 0, 10_000), Need("b", 0, 10_000))
    five_seconds = cost_micros(5 * NS_PER_SECOND, 36_000)
    assert share(2 * five_seconds - 1, needs, 36_000) == {}
    assert share(2 * five_seconds, needs, 36_000) == {"a": five_seconds, "b": five_seconds}


@pytest.mark.parametrize(("age", "due"), [(145, False), (146, True)])
def test_no_attempt_is_closed_by_time_before_its_keeper_must_have_acted(
    age: int, due: bool
) -> None:
    assert may_close_by_time(age * NS_PER_SECOND, 100 * NS_PER_SECOND) is due
