"""Laws 1 to 8 of the cap as they are written, each a function that says its number; and what follows from them.

They count by themselves: no figure here comes from the code under test.
"""

from __future__ import annotations

from collections import Counter

from app.domain.fork import ForkState
from app.domain.money import NS_PER_HOUR, NS_PER_SECOND
from app.domain.report import Tally, totals
from tests.ledger.books import Attempt
from tests.ledger.world import World

START_WINDOW_NS = 30 * NS_PER_SECOND
CLOSE_MARGIN_NS = 15 * NS_PER_SECOND
SILENT_NS = 15 * NS_PER_SECOND


def check(world: World) -> None:
    """Every law, now."""
    for law in LAWS:
        law(world)


def law_1_the_parts_are_the_budget(world: World) -> None:
    books = world.books
    for run in books.runs.values():
        purse = run.purse
        parts = (purse.pool_micros, purse.granted_micros, purse.charged_micros)
        assert min(parts) >= 0, f"law 1: a part is below 0: {purse}"
        assert sum(parts) == purse.budget_micros == sum(run.begun_with), f"law 1: {purse}"
        assert purse.charged_micros <= run.cap_micros, "law 1: charged above the cap"
        held = sum(fork.grant_micros for fork in books.of_run(run.run_id))
        assert held == purse.granted_micros, f"law 1: forks hold {held} of {purse}"
        charged = sum(
            attempt.charged.total_micros
            for attempt in books.attempts.values()
            if attempt.run_id == run.run_id
        )
        assert charged == purse.charged_micros, f"law 1: machines cost {charged} of {purse}"
        moved = [run.begun_with[0], run.begun_with[1], 0]
        for move in run.entries.values():
            moved[0] += move.pool_micros
            moved[1] += move.granted_micros
            moved[2] += move.charged_micros
        assert tuple(moved) == parts, "law 1: the entries are not the purse"


def law_2_many_readings_cost_what_one_costs(world: World) -> None:
    for attempt in world.books.attempts.values():
        if not attempt.is_open:
            lived_ns = min(_lived_ns(attempt), attempt.lease_ns)
            once = _price(lived_ns, _rate(world, attempt))
            assert attempt.charged.total_micros == once, f"law 2: {attempt}, once: {once}"
            first = world.closed.setdefault(attempt.attempt_id, attempt.charged)
            assert attempt.charged == first, f"law 2: {attempt} was charged anew"


def law_3_parts_cost_what_the_whole_costs(world: World) -> None:
    for attempt in world.books.attempts.values():
        if attempt.is_open and attempt.noted is not None:
            when_ns, noted = attempt.noted
            lease_ns = world.leases_noted[attempt.attempt_id]
            whole = _price(min(when_ns - attempt.opened_ns, lease_ns), _rate(world, attempt))
            assert noted == whole, f"law 3: {attempt} in parts, {whole} in one"


def law_4_parts_and_outcomes_add_up(world: World) -> None:
    for attempt in world.books.attempts.values():
        split = attempt.charged
        parts = (split.verification_micros, split.tasks_micros, split.environment_micros)
        assert min(parts) >= 0, f"law 4: {split}"
        assert sum(parts) == split.total_micros, f"law 4: {split}"
    for run in world.books.runs.values():
        forks = [fork for fork in world.books.of_run(run.run_id) if not fork.template]
        counted = totals(
            Tally(
                Counter(fork.state for fork in forks),
                Counter(fork.outcome for fork in forks if fork.outcome is not None),
            )
        )
        assert counted.pop("requested") == run.requested == sum(counted.values()), "law 4"


def law_5_rounded_up_once_an_attempt(world: World) -> None:
    for attempt in world.books.attempts.values():
        if not attempt.is_open:
            exact = min(_lived_ns(attempt), attempt.lease_ns) * _rate(world, attempt)
            over = attempt.charged.total_micros * NS_PER_HOUR - exact
            assert type(attempt.charged.total_micros) is int, "law 5: money is a whole number"
            assert 0 <= over < NS_PER_HOUR, f"law 5: {attempt} is {over / NS_PER_HOUR} too dear"


def law_6_no_machine_starts_unfunded(world: World) -> None:
    for attempt in world.books.attempts.values():
        smallest_ns = world.books.runs[attempt.run_id].smallest_lease_ns
        assert attempt.first_lease_ns >= smallest_ns, f"law 6: {attempt}, not {smallest_ns}"
    for cap, named, smallest in world.refusals:
        assert cap < named == smallest, f"law 6: {cap} refused for {named}, not {smallest}"
    for run in world.books.runs.values():
        assert run.cap_micros >= world.smallest_caps[run.run_id], "law 6: too small a cap runs"


def law_7_nothing_is_rung_before_its_rows(world: World) -> None:
    """Of the real verbs and a real store: `tests/flow/test_bells_after_rows.py`."""
    for bell in world.rung:
        known = bell in world.books.runs or bell in world.books.attempts
        assert known, f"law 7: {bell} was rung and is not there"


def law_8_no_attempt_is_closed_by_guess(world: World) -> None:
    for attempt in world.books.attempts.values():
        if attempt.is_open:
            held = world.books.forks[attempt.fork_id].grant_micros
            whole = _price(attempt.lease_ns, _rate(world, attempt))
            assert whole <= held, f"law 8: {attempt} may cost {whole}, {held} are set aside"
        elif attempt.closed_by_time:
            assert attempt.closed_ns is not None
            aged_ns = attempt.closed_ns - attempt.opened_ns
            due_ns = START_WINDOW_NS + attempt.lease_ns + CLOSE_MARGIN_NS
            assert aged_ns > due_ns, f"law 8: {attempt} was closed after {aged_ns}"
            whole = _price(attempt.lease_ns, _rate(world, attempt))
            assert attempt.charged.total_micros == whole, "law 8: not the full lease"
        if not attempt.is_open:
            assert not world.runs_now(attempt), f"law 8: {attempt} is closed and runs"


def no_machine_outlives_its_lease(world: World) -> None:
    for attempt in world.books.attempts.values():
        machine = world.machines[attempt.attempt_id]
        if machine.ended_boot_ns is not None:
            over_ns = machine.ended_boot_ns - attempt.deadline_boot_ns
            assert over_ns <= machine.late_ns, f"lived {over_ns} past its lease: {attempt}"
        elif world.runs_now(attempt):
            over_ns = world.host(attempt).boot_ns(world.now_ns) - attempt.deadline_boot_ns
            assert over_ns <= world.host(attempt).slow_ns, f"lives {over_ns} past its lease"


def a_machine_is_charged_for_all_its_life(world: World) -> None:
    for attempt in world.books.attempts.values():
        machine = world.machines[attempt.attempt_id]
        if attempt.is_open or machine.born_boot_ns is None or machine.ended_boot_ns is None:
            continue
        lived_ns = min(machine.ended_boot_ns - machine.born_boot_ns, attempt.lease_ns)
        assert _lived_ns(attempt) >= lived_ns, f"{attempt} lived {lived_ns}"


def a_lease_grows_where_its_host_was_heard(world: World) -> None:
    """A silent host cannot tell its keepers; and if it is gone for good, the whole lease is charged."""
    for attempt in world.books.attempts.values():
        before_ns = world.leases.get(attempt.attempt_id, attempt.first_lease_ns)
        if attempt.lease_ns > before_ns:
            silent_ns = world.database_ns - world.host(attempt).heard_ns
            assert silent_ns <= SILENT_NS, f"extended after {silent_ns} of silence: {attempt}"


def a_lease_only_grows(world: World) -> None:
    for attempt in world.books.attempts.values():
        before_ns = world.leases.get(attempt.attempt_id, attempt.first_lease_ns)
        assert attempt.lease_ns >= before_ns, f"a lease shrank from {before_ns}: {attempt}"
        world.leases[attempt.attempt_id] = attempt.lease_ns


def sharing_leaves_an_indivisible_rest(world: World) -> None:
    for run_id, left in world.left_over.items():
        worthwhile = _price(5 * NS_PER_SECOND, world.books.runs[run_id].rate)
        assert left < worthwhile, f"{left} stay in the pool while a fork of {run_id} wants"
    world.left_over.clear()


def a_template_leaves_the_pool_to_those_that_verify_it(world: World) -> None:
    for attempt in world.books.attempts.values():
        if world.books.forks[attempt.fork_id].template:
            assert attempt.lease_ns == attempt.first_lease_ns, f"a template was extended: {attempt}"


def nobody_joins_a_run_that_is_to_stop(world: World) -> None:
    for run_id, count in world.to_stop.items():
        assert len(world.books.of_run(run_id)) == count, f"forks joined {run_id} after its stop"


def a_fork_has_one_machine(world: World) -> None:
    open_of = Counter(each.fork_id for each in world.books.attempts.values() if each.is_open)
    assert all(count == 1 for count in open_of.values()), f"two meters run: {open_of}"
    for fork in world.books.forks.values():
        waits = fork.state in (ForkState.QUEUED, ForkState.ENDED)
        assert waits == (fork.fork_id not in open_of), f"a meter runs for nobody: {fork}"


LAWS = (
    law_1_the_parts_are_the_budget,
    law_2_many_readings_cost_what_one_costs,
    law_3_parts_cost_what_the_whole_costs,
    law_4_parts_and_outcomes_add_up,
    law_5_rounded_up_once_an_attempt,
    law_6_no_machine_starts_unfunded,
    law_7_nothing_is_rung_before_its_rows,
    law_8_no_attempt_is_closed_by_guess,
    no_machine_outlives_its_lease,
    a_machine_is_charged_for_all_its_life,
    a_lease_grows_where_its_host_was_heard,
    a_lease_only_grows,
    sharing_leaves_an_indivisible_rest,
    a_template_leaves_the_pool_to_those_that_verify_it,
    nobody_joins_a_run_that_is_to_stop,
    a_fork_has_one_machine,
)


def _lived_ns(attempt: Attempt) -> int:
    assert attempt.closed_boot_ns is not None
    return max(0, attempt.closed_boot_ns - attempt.opened_boot_ns)


def _rate(world: World, attempt: Attempt) -> int:
    return world.books.runs[attempt.run_id].rate


def _price(duration_ns: int, micros_per_hour: int) -> int:
    whole, rest = divmod(duration_ns * micros_per_hour, NS_PER_HOUR)
    return whole + (rest > 0)
