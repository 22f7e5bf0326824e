"""Whose doing an end was, on fakes: what stalls, starves or kills a machine, and what its way out met, and when."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.run import GuestFaults
from tests.flow.stage import Stage, definition, sim, spec


@pytest.fixture
def built(stage: Stage) -> Stage:
    assert stage.build(definition(test=sim("exit 0"), repeat=1))["state"] == "verified"
    return stage


def only(page: dict[str, Any]) -> dict[str, Any]:
    (fork,) = page["forks"]
    assert isinstance(fork, dict)
    return fork


def started(stage: Stage, **more: Any) -> tuple[str, str]:
    """A run of one fork whose command runs: its id, and its machine's name."""
    run_id = stage.start(spec(count=1, environment_retries=0, **more))
    stage.tick()
    (claimed,) = stage.ports.attempts.held_by("host0")
    assert claimed.attempt.intent
    return run_id, claimed.attempt.attempt_id


@pytest.mark.parametrize(("stalled_s", "outcome"), [(7, "env_failed"), (6, "timed_out")])
def test_a_stop_of_more_than_a_tenth_of_the_limit_excuses_a_command_that_ran_out_of_time(
    built: Stage, stalled_s: int, outcome: str
) -> None:
    run_id, name = started(built, exec=sim("58s exit 0", timeout_s=60))
    built.world.stall(name, stalled_s)
    fork = only(built.run_until_final(run_id))
    assert fork["outcome"] == outcome
    if outcome == "timed_out":
        assert fork["reward"] == 0.0
        return
    failure = fork["failure"]
    assert (failure["kind"], failure["phase"]) == ("host_stalled", "exec")
    assert not failure["task_may_have_caused"]
    assert failure["evidence"]["strain"]["stopped_seconds"] == stalled_s
    assert failure["evidence"]["strain"]["stops"] == 1
    assert failure["evidence"]["limit_seconds"] == 60


def test_starvation_is_a_stall_too(built: Stage) -> None:
    run_id, name = started(built, exec=sim("70s exit 0", timeout_s=60))
    built.world.boxes[name].starved_ns += 20 * 10**9
    failure = only(built.run_until_final(run_id))["failure"]
    assert failure["kind"] == "host_stalled"
    assert failure["evidence"]["strain"]["starved_seconds"] == 20


def test_a_stop_excuses_no_command_that_ended_in_its_time(built: Stage) -> None:
    run_id, name = started(built, exec=sim("10s exit 3", timeout_s=60))
    built.world.stall(name, 30)
    fork = only(built.run_until_final(run_id))
    assert (fork["outcome"], fork["exit_code"]) == ("failed", 3)


def test_a_stop_before_the_command_does_not_excuse_it(built: Stage) -> None:
    """The task is stopped for long and ends; its grade, which then runs out of time, is not excused by that."""
    run_id, name = started(
        built, exec=sim("10s exit 0", timeout_s=60), grade=sim("30s", timeout_s=20)
    )
    built.world.stall(name, 40)
    failure = only(built.run_until_final(run_id))["failure"]
    assert (failure["kind"], failure["phase"]) == ("own_test_failed", "grade")


def test_what_a_target_did_while_the_command_ran_is_the_environment_s(built: Stage) -> None:
    run_id, name = started(built, exec=sim("10s exit 3"))
    built.world.lose_egress(name, "policy.internal:8000", "reset")
    failure = only(built.run_until_final(run_id))["failure"]
    assert failure["kind"] == "egress_lost"
    assert failure["evidence"]["egress"][0]["what"] == "reset"


def test_a_refusal_is_no_fault(built: Stage) -> None:
    run_id, name = started(built, exec=sim("10s exit 3"))
    built.world.lose_egress(name, "evil.example:80", "refused")
    assert only(built.run_until_final(run_id))["outcome"] == "failed"


def test_a_command_that_passed_was_not_spoilt(built: Stage) -> None:
    run_id, name = started(built, exec=sim("10s exit 0"))
    built.world.lose_egress(name, "policy.internal:8000", "connection_refused")
    assert only(built.run_until_final(run_id))["outcome"] == "passed"


def test_what_a_target_did_to_an_earlier_command_is_not_held_against_a_later_one(
    built: Stage,
) -> None:
    run_id, name = started(built, exec=sim("10s exit 0"), grade=sim("5s exit 1"))
    built.world.lose_egress(name, "policy.internal:8000", "gone")
    assert only(built.run_until_final(run_id))["outcome"] == "failed"


@pytest.mark.parametrize(
    ("word", "kind", "blames"),
    [
        ("oom", "guest_out_of_memory", True),
        ("victim exit 1", "guest_out_of_memory", True),
        ("panic", "guest_panicked", True),
        ("crash", "guest_lost", True),
        ("hostoom", "host_out_of_memory", False),
    ],
)
def test_each_death_has_its_name(built: Stage, word: str, kind: str, blames: bool) -> None:
    fork = only(
        built.run_until_final(built.start(spec(f"1s {word}", count=1, environment_retries=0)))
    )
    assert (fork["outcome"], fork["reward"]) == ("env_failed", None)
    failure = fork["failure"]
    assert (failure["kind"], failure["phase"]) == (kind, "exec")
    assert failure["task_may_have_caused"] is blames


def test_a_task_that_answers_for_its_machine_answers_for_its_memory(built: Stage) -> None:
    given = spec("1s oom", count=1, guest_faults=GuestFaults.TASK)
    fork = only(built.run_until_final(built.start(given)))
    assert (fork["outcome"], fork["reward"]) == ("failed", 0.0)


def test_a_victim_outside_of_the_command_is_its_environments_whoever_answers_for_guests(
    built: Stage,
) -> None:
    given = spec("1s victim exit 1", count=1, guest_faults=GuestFaults.TASK)
    fork = only(built.run_until_final(built.start(given)))
    assert (fork["outcome"], fork["reward"]) == ("env_failed", None)


def test_a_panic_for_memory_shows_the_kernel_s_own_sentence(built: Stage) -> None:
    page = built.run_until_final(built.start(spec("1s oom", count=1, environment_retries=0)))
    evidence = only(page)["failure"]["evidence"]
    assert evidence["panic"] == "Kernel panic - not syncing: System is deadlocked on memory"
    assert evidence["death_cause"] == "panicked"


def test_a_silent_machine_of_a_running_command_is_found_and_shown_as_it_stood(
    built: Stage,
) -> None:
    run_id, name = started(built, exec=sim("50s exit 0"))
    built.world.hang(name)
    built.tick()
    page = built.report(run_id)
    assert page["final"]
    failure = only(page)["failure"]
    assert (failure["kind"], failure["task_may_have_caused"]) == ("guest_hung", True)
    assert failure["evidence"]["keeper_lives"] is True
    assert failure["evidence"]["process_state"] == "S"


def test_a_machine_that_was_stopped_from_outside_is_never_the_task_s(built: Stage) -> None:
    run_id, name = started(built, exec=sim("50s exit 0"), guest_faults=GuestFaults.TASK)
    built.world.freeze(name)
    built.clock.advance(3)
    built.tick()
    fork = only(built.report(run_id))
    assert (fork["outcome"], fork["reward"]) == ("env_failed", None)
    failure = fork["failure"]
    assert (failure["kind"], failure["task_may_have_caused"]) == ("guest_hung", False)
    evidence = failure["evidence"]
    assert (evidence["process_state"], evidence["keeper_lives"]) == ("T", True)
    assert evidence["stopped_for_seconds"] == 3.0


def test_a_read_that_the_hosts_disk_failed_is_not_the_task_s_failure(built: Stage) -> None:
    run_id, name = started(built, exec=sim("10s exit 1"))
    box = built.world.boxes[name]
    built.world.note(box, "BLOCK_IO_ERROR", nospace=False, operation="read", action="report")
    failure = only(built.run_until_final(run_id))["failure"]
    assert (failure["kind"], failure["task_may_have_caused"]) == ("host_stalled", False)
    assert failure["evidence"]["block_errors"][0]["operation"] == "read"


def test_a_command_that_is_started_once_more_is_judged_from_then_on(built: Stage) -> None:
    """Its worker dies between the mark and the start: what the host took before the second start was nobody's."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(built.host.guest, "start", die)
        run_id = built.start(
            spec(count=1, environment_retries=0, exec=sim("70s exit 0", timeout_s=60))
        )
        with pytest.raises(KeyboardInterrupt):
            built.tick()
    (claimed,) = built.ports.attempts.held_by("host0")
    built.clock.advance(1)
    built.world.boxes[claimed.attempt.attempt_id].starved_ns += 50 * 10**9
    built.tick()
    fork = only(built.run_until_final(run_id))
    assert (fork["outcome"], fork["reward"]) == ("timed_out", 0.0)


def test_a_silence_of_a_machine_without_a_processor_is_never_the_task_s(built: Stage) -> None:
    run_id, name = started(built, exec=sim("50s exit 0"), guest_faults=GuestFaults.TASK)
    built.clock.advance(10)
    built.world.hang(name)
    built.world.boxes[name].starved_ns += 6 * 10**9
    built.tick()
    fork = only(built.report(run_id))
    assert (fork["outcome"], fork["reward"]) == ("env_failed", None)
    assert fork["failure"]["kind"] == "guest_hung"
    assert fork["failure"]["evidence"]["strain"]["starved_seconds"] == 6.0


def test_who_finds_a_silent_machine_ended_sees_what_was_seen_before(built: Stage) -> None:
    """Two threads may end it: the one that starts its command, and the one that looks after it."""
    _, name = started(built, exec=sim("50s exit 0"))
    built.world.freeze(name)
    built.host.machines.kill(name)
    assert built.host.machines.vitals(name).is_stopped
