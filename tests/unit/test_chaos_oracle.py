"""The oracle of the random fault run, by hand-made stories; and its steps, which can be paused and killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drills.chaos.oracle import STALLED, Fact, Story, Terms, When, verdicts
from drills.chaos.plan import Own
from drills.chaos.scheduler import Scheduler

UP, READY, RUNNING, ENDED, SAVED = When


def of(
    own: Own, *facts: tuple[str, When], reached: When = When.SAVED, **more: object
) -> tuple[bool, bool, bool, set[str]]:
    terms = {key: value for key, value in more.items() if key != "timed_out"}
    story = Story(tuple(Fact(*fact) for fact in facts), reached, bool(more.get("timed_out")))
    said = verdicts(story, Terms(own, **terms))  # type: ignore[arg-type]
    return said.own, said.by_task, said.capped, set(said.kinds)


@pytest.mark.parametrize("own", [Own.PASSED, Own.FAILED, Own.TIMED_OUT, Own.REPORTED])
def test_what_nothing_befell_comes_to_its_own_outcome_and_no_other(own: Own) -> None:
    assert of(own) == (True, False, False, set())


def test_a_machine_that_ended_while_its_command_ran_has_no_outcome() -> None:
    died = ("died exit", RUNNING)
    assert of(Own.PASSED, died, reached=RUNNING) == (False, False, False, {"guest_lost"})
    by_task = of(Own.PASSED, died, reached=RUNNING, guest_faults_are_tasks=True)
    assert by_task == (False, True, False, set())


@pytest.mark.parametrize("killed", ["died signal", "died keeper_lost"])
def test_a_machine_that_was_killed_from_outside_is_nobodys_task(killed: str) -> None:
    said = of(Own.PASSED, (killed, RUNNING), reached=RUNNING, guest_faults_are_tasks=True)
    assert said == (False, False, False, {"guest_lost"})


def test_a_machine_that_ended_before_its_command_is_never_the_tasks_fault() -> None:
    died = ("died panicked", READY)
    said = of(Own.PASSED, died, reached=READY, guest_faults_are_tasks=True)
    assert said == (False, False, False, {"guest_panicked"})


def test_what_had_ended_may_be_lost_until_it_is_saved_and_never_afterwards() -> None:
    assert of(Own.FAILED, ("died exit", ENDED), reached=ENDED)[0] is True
    assert of(Own.FAILED, ("died exit", ENDED), reached=ENDED)[3] == {"guest_lost"}
    assert of(Own.FAILED, ("died exit", SAVED), reached=SAVED) == (True, False, False, set())


def test_a_lease_that_ended_is_nobodys_fault_inside() -> None:
    died = ("died deadline", RUNNING)
    said = of(Own.ENDLESS, died, reached=RUNNING, guest_faults_are_tasks=True)
    assert said == (False, False, False, {"worker_lost", "host_lost"})
    assert of(Own.ENDLESS, died, reached=RUNNING, short_of_money=True)[2] is True


@pytest.mark.parametrize(
    ("lie", "kind"),
    [
        ("wake lie nonce", "barrier_failed"),
        ("wake lie reseeded", "barrier_failed"),
        ("wake lie boot_id", "contract_broken"),
        ("probe lie foreign_markers", "contract_broken"),
        ("test spoilt", "own_test_failed"),
    ],
)
def test_what_is_not_sound_is_never_handed_over(lie: str, kind: str) -> None:
    assert of(Own.PASSED, (lie, UP), reached=UP)[3] == {kind}
    assert of(Own.PASSED, (lie, UP), reached=SAVED)[0] is False


def test_a_lost_target_counts_while_a_command_ran_that_did_not_pass() -> None:
    lost = ("egress task", RUNNING)
    assert of(Own.FAILED, lost) == (False, False, False, {"egress_lost"})
    assert of(Own.PASSED, lost) == (True, False, False, set())
    assert of(Own.FAILED, ("egress none", RUNNING)) == (True, False, False, set())
    assert of(Own.PASSED, ("egress grade", RUNNING), grade=Own.FAILED)[3] == {"egress_lost"}


def test_a_stall_counts_where_it_used_up_the_time() -> None:
    said = of(Own.PASSED, (STALLED, RUNNING), timed_out=True)
    assert said == (False, False, False, {"host_stalled"})
    assert of(Own.TIMED_OUT, ("machine stall", RUNNING), timed_out=True)[3] == set()


def test_a_broken_channel_is_tried_again_once_something_has_started() -> None:
    broke = ("start guest_lost", RUNNING)
    assert of(Own.PASSED, broke) == (True, False, False, set())
    assert of(Own.PASSED, broke, broke, broke)[3] == {"guest_lost", "guest_hung"}
    assert of(Own.PASSED, ("open guest_lost", UP), reached=UP)[3] == {"guest_lost", "guest_hung"}


def test_a_worker_may_lose_only_what_it_brings_up() -> None:
    assert of(Own.PASSED, ("worker killed", UP), reached=UP)[3] == {"worker_lost"}
    assert of(Own.PASSED, ("worker killed", RUNNING)) == (True, False, False, set())


def test_a_bad_grade_is_its_own_failure() -> None:
    said = of(Own.PASSED, grade=Own.BAD_GRADE, grade_kind="own_test_failed")
    assert said == (False, False, False, {"own_test_failed"})


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler()
    yield made
    made.close()


def test_a_step_goes_on_where_it_was_paused(scheduler: Scheduler) -> None:
    seen: list[int] = []

    def act() -> None:
        seen.append(1)
        fiber.pause()
        seen.append(2)

    fiber = scheduler.fiber(act)
    assert seen == []
    fiber.go_on()
    assert (seen, fiber.over) == ([1], False)
    fiber.go_on()
    assert (seen, fiber.over, fiber.error) == ([1, 2], True, None)


def test_a_killed_step_only_unwinds_and_one_that_never_began_does_nothing(
    scheduler: Scheduler,
) -> None:
    seen: list[str] = []

    def act() -> None:
        try:
            fiber.pause()
            seen.append("on")
        finally:
            seen.append("unwound")

    fiber = scheduler.fiber(act)
    fiber.go_on()
    fiber.kill()
    assert (seen, fiber.over, fiber.error) == (["unwound"], True, None)
    other = scheduler.fiber(lambda: seen.append("never"))
    other.kill()
    assert seen == ["unwound"]


def test_an_error_of_a_step_is_kept_for_its_driver(scheduler: Scheduler) -> None:
    def act() -> None:
        raise ValueError("seen")

    fiber = scheduler.fiber(act)
    fiber.go_on()
    assert isinstance(fiber.error, ValueError)
