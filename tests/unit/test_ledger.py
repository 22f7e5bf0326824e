"""Grants, leases, charges, sharing: the arithmetic behind the cap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.fork import EndReason
from app.domain.ledger import (
    NOTHING,
    Move,
    Need,
    Purse,
    Settled,
    Split,
    charge,
    equal_grants,
    give_back,
    grant,
    is_environments,
    join,
    lease_ns,
    may_close_by_time,
    may_start,
    settle,
    share,
    smallest_extension_micros,
    top_up,
    unfunded,
)
from app.domain.machine import Shape
from app.domain.money import NS_PER_SECOND, cost_micros
from app.domain.quote import Priced, Timing, smallest_cap_micros, smallest_lease_ns
from app.domain.rates import Basis, Rate
from app.errors import Conflict

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


def test_the_smallest_cap_funds_the_neediest_of_unlike_groups() -> None:
    short, long = (
        Priced("s@1", count, Shape(1, 512, 4), Timing(3600 * NS_PER_SECOND, 0, test_ns, 0, False))
        for count, test_ns in ((3, 0), (1, 50 * NS_PER_SECOND))
    )
    smallest = smallest_cap_micros((short, long), Rate(36_000, Basis.COMMITTED, "card"))
    needs = cost_micros(smallest_lease_ns(long.timing), 36_000)
    worst = (10**9,) * 4
    assert min(equal_grants(smallest, worst)) == needs
    assert min(equal_grants(smallest - 1, worst)) < needs


NOW = 1000
NEEDS = st.lists(
    st.tuples(
        st.integers(0, 10**6),
        st.integers(-10, 10**6),
        st.none() | st.integers(NOW - 10, NOW + 1000),
    ),
    max_size=30,
).map(lambda rows: tuple(Need(f"f{n}", a, a + b, ends) for n, (a, b, ends) in enumerate(rows)))


@given(st.integers(0, 10**8), NEEDS, RATE)
def test_sharing_stays_within_the_pool_and_within_every_need(
    pool: int, needs: tuple[Need, ...], rate: int
) -> None:
    added = share(pool, needs, rate, NOW)
    by_id = {need.fork_id: need for need in needs}
    assert sum(added.values()) <= pool
    for fork_id, part in added.items():
        assert 0 < part <= by_id[fork_id].lacking_micros
        assert by_id[fork_id].can_use(NOW)


@given(st.integers(0, 10**8), NEEDS, RATE)
def test_sharing_leaves_less_than_one_worthwhile_extension_while_anybody_wants(
    pool: int, needs: tuple[Need, ...], rate: int
) -> None:
    added = share(pool, needs, rate, NOW)
    left = pool - sum(added.values())
    smallest = smallest_extension_micros(rate)
    wanting = [need for need in needs if need.can_use(NOW)]
    worthwhile = {need.fork_id: min(smallest, need.lacking_micros) for need in wanting}
    assert all(part >= worthwhile[fork_id] for fork_id, part in added.items())
    without = [worthwhile[need.fork_id] for need in wanting if need.fork_id not in added]
    assert all(left < part for part in without)
    if any(added.get(need.fork_id, 0) < need.lacking_micros for need in wanting):
        assert left < smallest


def test_sharing_is_even_and_fills_small_needs_first() -> None:
    needs = (Need("a", 0, 100), Need("b", 0, 1000), Need("c", 0, 1000))
    assert share(700, needs, 36_000, NOW) == {"a": 100, "b": 300, "c": 300}
    assert share(10_000, needs, 36_000, NOW) == {"a": 100, "b": 1000, "c": 1000}


def test_where_an_even_part_is_too_small_whoever_ends_soonest_is_extended() -> None:
    five_seconds = smallest_extension_micros(36_000)
    needs = (
        Need("a", 0, 10_000),
        Need("b", 0, 10_000, lease_ends_ns=NOW + 9),
        Need("c", 0, 10_000, lease_ends_ns=NOW + 8),
        Need("d", 0, 10_000, lease_ends_ns=NOW + 9),
        Need("e", 0, 10_000, lease_ends_ns=NOW),
    )
    assert share(five_seconds - 1, needs, 36_000, NOW) == {}
    for pool, extended in enumerate(("c", "bc", "bcd", "abcd"), start=1):
        added = share(pool * five_seconds, needs, 36_000, NOW)
        assert added == dict.fromkeys(extended, five_seconds)
        assert pool == 4 or share((pool + 1) * five_seconds - 1, needs, 36_000, NOW) == added


def test_a_fork_that_lacks_less_than_an_extension_gets_what_it_lacks() -> None:
    needs = (Need("a", 0, 1000), Need("b", 990, 1000), Need("c", 0, 1000))
    assert share(smallest_extension_micros(36_000) - 1, needs, 36_000, NOW) == {"b": 10}
    assert share(9, needs, 36_000, NOW) == {}


def test_a_machine_whose_lease_is_over_is_not_extended() -> None:
    over, running = Need("a", 0, 1000, NOW), Need("b", 0, 1000, NOW + 1)
    assert share(10_000, (over, running), 36_000, NOW) == {"b": 1000}


def test_a_replacement_is_funded_by_what_is_left_and_then_the_pool() -> None:
    split = Split(70, 0, 0, 70)
    settled = settle(split, 100, 500, 50, 20, replaced=True)
    assert settled == Settled(Move(0, -70, 70), grant(20), NOTHING, True, 50, 430)
    too_poor = settle(split, 100, 500, 50, 19, replaced=True)
    assert too_poor == Settled(Move(0, -70, 70), NOTHING, give_back(30), False, 0, 500)
    final = settle(split, 100, 500, 50, 20, replaced=False)
    assert final == too_poor


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_machine_starts_on_what_funds_its_smallest_lease(
    held: int, smallest: int, pool: int
) -> None:
    move = top_up(held, smallest, pool)
    assert may_start(held, smallest) == (held >= smallest)
    assert (move is not None) == (held + pool >= smallest or held >= smallest)
    if move is not None:
        assert may_start(held + move.granted_micros, smallest)
        assert move.granted_micros == max(0, smallest - held)


def test_who_cannot_be_funded_ends_for_what_was_before() -> None:
    assert unfunded(failed_before=False) is EndReason.RUN_EXHAUSTED
    assert unfunded(failed_before=True) is EndReason.ENVIRONMENT_FAILED


@pytest.mark.parametrize(
    ("reason", "failed", "environment"),
    [
        (EndReason.COMMAND_PASSED, False, False),
        (EndReason.CANCELLED, True, True),
        (EndReason.GUEST_FAULT_BY_TASK, True, False),
        (EndReason.ENVIRONMENT_FAILED, False, True),
        (None, False, True),
    ],
)
def test_whose_an_attempt_is(reason: EndReason | None, failed: bool, environment: bool) -> None:
    assert is_environments(reason, failed=failed) is environment


def test_a_machine_on_a_silent_host_gets_nothing_and_a_fork_that_waits_there_does() -> None:
    silent = Need("a", 0, 1000, NOW + 9, host_alive=False)
    waiting = Need("b", 0, 1000, host_alive=False)
    assert share(2000, (silent, waiting), 1_000_000, NOW) == {"b": 1000}


def test_forks_join_on_what_the_pool_has() -> None:
    assert join(30, (10, 20)) == grant(30)
    assert join(0, ()) == NOTHING
    with pytest.raises(Conflict, match="31 micro-dollars; 30 are left"):
        join(30, (10, 21))


def test_a_purse_is_a_split_of_its_budget() -> None:
    purse = Purse(100, 60, 30, 10)
    assert purse.after(grant(60)) == Purse(100, 0, 90, 10)
    assert purse.after(give_back(30)) == Purse(100, 90, 0, 10)
    for impossible in (grant(61), give_back(31), Move(0, 10, -10) + Move(0, 1, -1)):
        with pytest.raises(ValueError, match="no split"):
            purse.after(impossible)
    with pytest.raises(ValueError, match="no split"):
        Purse(100, 60, 30, 11)
    with pytest.raises(ValueError, match="makes or loses"):
        Move(pool_micros=-1)


@pytest.mark.parametrize(("age", "due"), [(145, False), (146, True)])
def test_no_attempt_is_closed_by_time_before_its_keeper_must_have_acted(
    age: int, due: bool
) -> None:
    assert may_close_by_time(age * NS_PER_SECOND, 100 * NS_PER_SECOND) is due
