"""Forks that are kept when their verdict is known: the verdict stands, the machine is there to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.domain.fork import EndReason, ForkState
from app.domain.machine import DeathCause
from app.domain.run import ExecState, Fork, GuestFaults, RunSpec
from app.errors import Conflict, FailureKind
from app.flow import hold, recover, report, stop
from tests.flow.stage import PROJECT, Stage, sim, spec
from tests.flow.test_hold import done

FAILS = "1s print why exit 7"


def kept_spec(text: str = FAILS, count: int = 1, keep: int = 1, **more: Any) -> RunSpec:
    return spec(text, count=count, keep_failed=keep, **more)


def kept(stage: Stage, given: RunSpec, seconds: float = 5) -> tuple[str, Fork]:
    """A run of this spec, and its fork that is kept."""
    run_id = stage.start(given)
    stage.run_for(seconds)
    (fork,) = [fork for fork in stage.ports.runs.forks(run_id) if fork.kept is not None]
    return run_id, fork


def entry(stage: Stage, run_id: str) -> dict[str, Any]:
    (only,) = stage.report(run_id)["forks"]
    assert isinstance(only, dict)
    return only


def run_in(stage: Stage, fork: Fork, text: str) -> int | None:
    row = done(stage, hold.exec(stage.ports, PROJECT, fork.fork_id, sim(text), None))
    assert row.result is not None
    return row.result.exit_code


def test_a_kept_fork_is_pending_and_says_what_it_will_be(suite: Stage) -> None:
    run_id, fork = kept(suite, kept_spec())
    page = suite.report(run_id)
    assert (page["final"], page["totals"]["pending"], page["totals"]["failed"]) == (False, 1, 0)
    seen = page["forks"][0]
    assert (seen["outcome"], seen["reward"], seen["reward_valid"]) == ("pending", None, False)
    assert (seen["exit_code"], seen["stdout_tail"]) == (7, "why\n")
    assert seen["kept"]["outcome"] == "failed"
    assert seen["kept"]["reason"] == "command_failed"
    progress: Any = report.summary(suite.ports, PROJECT, run_id)["progress"]
    assert (progress["ready"], progress["kept"]) == (1, 1)
    assert suite.ports.runs.fork(PROJECT, fork.fork_id).state is ForkState.READY


@pytest.mark.parametrize(
    ("given", "reason", "outcome", "reward"),
    [
        (kept_spec(), "command_failed", "failed", 0.0),
        (kept_spec("90s print late"), "command_timed_out", "timed_out", 0.0),
        (kept_spec(FAILS, grade=sim("1s exit 3")), "command_failed", "failed", 0.0),
        (
            kept_spec(exec=sim("1s exit 75", environment_exit_codes=(75,))),
            "environment_failed",
            "env_failed",
            None,
        ),
    ],
)
def test_what_is_kept_is_run_in_and_released(
    suite: Stage, given: RunSpec, reason: str, outcome: str, reward: float | None
) -> None:
    run_id, fork = kept(suite, given, 70)
    assert fork.kept is not None
    assert fork.kept.value == reason
    assert run_in(suite, fork, "0.1s exit 5") == 5
    sha256 = suite.put(b"content")
    up = hold.upload(suite.ports, PROJECT, fork.fork_id, "/tmp/file", sha256, 0o600)
    assert done(suite, up).state is ExecState.ENDED
    assert entry(suite, run_id)["outcome"] == "pending"
    hold.release(suite.ports, PROJECT, fork.fork_id, None, None)
    hold.release(suite.ports, PROJECT, fork.fork_id, None, None)
    page = suite.run_until_final(run_id)
    hold.release(suite.ports, PROJECT, fork.fork_id, None, None)
    seen = page["forks"][0]
    assert (seen["outcome"], seen["reason"], seen["reward"]) == (outcome, reason, reward)
    assert (seen["kept"], page["totals"]["pending"]) == (None, 0)
    assert suite.host.machines.known() == ()


def test_own_test_that_fails_is_kept_at_its_last_attempt(suite: Stage) -> None:
    suite.world.spoil("test_", "1s print flaky exit 1")
    suite.world.spoil("test_", "1s print flaky exit 1")
    given = kept_spec("1s", verify_each=True, environment_retries=1)
    run_id, fork = kept(suite, given, 20)
    assert fork.failure is not None
    assert (fork.attempts, fork.failure.kind) == (2, FailureKind.OWN_TEST_FAILED)
    page = suite.report(run_id)
    assert [each["attempt"] for each in page["environment_failures"]] == [1]
    assert run_in(suite, fork, "0.1s") == 0
    attempt = suite.ports.attempts.get(fork.attempt_id or "")
    assert attempt is not None
    assert attempt.attempt.intent is False  # nobody's task was run in it
    hold.release(suite.ports, PROJECT, fork.fork_id, None, None)
    page = suite.run_until_final(run_id)
    assert [each["attempt"] for each in page["environment_failures"]] == [1, 2]
    assert (page["forks"][0]["failure"]["kind"], page["cost"]["tasks_usd"]) == (
        "own_test_failed",
        0,
    )


def test_a_kept_fork_takes_no_grade(suite: Stage) -> None:
    run_id, fork = kept(suite, kept_spec())
    for passed, reward in ((True, None), (False, None), (None, 0.5)):
        with pytest.raises(Conflict) as refused:
            hold.release(suite.ports, PROJECT, fork.fork_id, passed, reward)
        assert refused.value.code == "verdict_stands"
    assert entry(suite, run_id)["outcome"] == "pending"


def test_no_more_are_kept_than_asked_for_and_passes_never(suite: Stage) -> None:
    run_id = suite.start(kept_spec(FAILS, count=5, keep=2))
    suite.run_for(10)
    page = suite.report(run_id)
    assert (page["totals"]["failed"], page["totals"]["pending"]) == (3, 2)
    first = next(fork for fork in suite.ports.runs.forks(run_id) if fork.outcome is None)
    hold.release(suite.ports, PROJECT, first.fork_id, None, None)
    suite.run_for(3)
    assert suite.report(run_id)["totals"]["pending"] == 1
    passed = suite.run_until_final(suite.start(kept_spec("1s", count=3, keep=2)))
    assert passed["totals"]["passed"] == 3


def _released(stage: Stage, run_id: str, fork: Fork) -> None:
    hold.release(stage.ports, PROJECT, fork.fork_id, None, None)


def _cancelled(stage: Stage, run_id: str, fork: Fork) -> None:
    stop.cancel(stage.ports, PROJECT, run_id)


def _killed(stage: Stage, run_id: str, fork: Fork) -> None:
    stage.world.die(fork.attempt_id or "", DeathCause.SIGNAL, 9)


def _hung(stage: Stage, run_id: str, fork: Fork) -> None:
    stage.world.boxes[fork.attempt_id or ""].hung = True
    hold.exec(stage.ports, PROJECT, fork.fork_id, sim("1s"), None)


def _powered_off(stage: Stage, run_id: str, fork: Fork) -> None:
    hold.exec(stage.ports, PROJECT, fork.fork_id, sim("1s poweroff"), None)


def _host_taken_down(stage: Stage, run_id: str, fork: Fork) -> None:
    recover.leave(stage.ports, stage.host)


def _host_lost(stage: Stage, run_id: str, fork: Fork) -> None:
    stage.hosts.clear()
    stage.clock.advance(10_000)


def _lease_over(stage: Stage, run_id: str, fork: Fork) -> None:
    stage.run_for(2000, step=10)


ENDS: list[Callable[[Stage, str, Fork], None]] = [
    _released,
    _cancelled,
    _killed,
    _hung,
    _powered_off,
    _host_taken_down,
    _host_lost,
    _lease_over,
]


@pytest.mark.parametrize("end", ENDS)
def test_whatever_ends_it_the_verdict_stands(
    suite: Stage, end: Callable[[Stage, str, Fork], None]
) -> None:
    run_id, fork = kept(suite, kept_spec(guest_faults=GuestFaults.ENVIRONMENT))
    end(suite, run_id, fork)
    page = suite.run_until_final(run_id)
    seen = page["forks"][0]
    assert (seen["outcome"], seen["reason"]) == ("failed", "command_failed")
    assert (seen["reward"], seen["exit_code"], seen["attempts"]) == (0.0, 7, 1)
    assert page["environment_failures"] == []
    assert page["cost"]["total_usd"] <= page["cost"]["spend_cap_usd"]


def test_its_lease_says_until_when_and_is_not_extended(suite: Stage) -> None:
    given = kept_spec(
        FAILS,
        count=2,
        exec=sim(FAILS, timeout_s=900),
        cap_usd=0.004,
        environment_retries=0,
    )
    run_id, fork = kept(suite, given)
    until = fork.kept_until_ns or 0
    suite.run_for(30)
    attempt = suite.ports.attempts.get(fork.attempt_id or "")
    assert attempt is not None
    assert attempt.attempt.lease_ns < fork.worst_attempt_ns  # more money would have extended it
    assert suite.ports.runs.get(PROJECT, run_id).pool_micros > 0
    left_s = (until - suite.clock.wall_ns()) / 1e9
    suite.run_for(left_s - 2)
    assert suite.report(run_id)["final"] is False
    suite.run_for(5)
    page = suite.report(run_id)
    assert page["final"] is True
    assert page["totals"]["failed"] == 2
    assert page["cost"]["total_usd"] <= 0.004


def test_the_hold_of_a_kept_fork_does_not_end_it(suite: Stage) -> None:
    given = kept_spec(
        count=1, exec=None, hold_ns=60 * 1_000_000_000, verify_each=True, environment_retries=0
    )
    suite.world.spoil("test_", "1s exit 1")
    run_id, fork = kept(suite, given)
    assert fork.kept is EndReason.ENVIRONMENT_FAILED
    suite.run_for(70)
    assert suite.report(run_id)["final"] is False
    page = suite.run_until_final(run_id)
    assert (page["forks"][0]["outcome"], page["totals"]["env_failed"]) == ("env_failed", 1)


def test_a_worker_that_comes_after_adopts_it_and_it_stays_kept(suite: Stage) -> None:
    run_id, fork = kept(suite, kept_spec())
    suite.hosts["host0"] = replace(suite.host, claim="host0/2")
    assert recover.adopt(suite.ports, suite.host) == frozenset()
    suite.run_for(5)
    assert suite.report(run_id)["final"] is False
    assert run_in(suite, fork, "0.1s exit 4") == 4
    assert entry(suite, run_id)["kept"]["reason"] == "command_failed"
    assert suite.world.starts[f"task_{fork.attempt_id}"] == 1


def test_a_machine_that_is_gone_is_not_kept(suite: Stage) -> None:
    page = suite.run_until_final(suite.start(kept_spec("1s crash")))
    assert page["forks"][0]["outcome"] == "env_failed"
    page = suite.run_until_final(suite.start(kept_spec("1s poweroff")))
    assert page["forks"][0]["outcome"] == "failed"


def test_a_machine_of_a_bundle_that_changed_is_not_kept(suite: Stage) -> None:
    suite.world.fault("probe", FailureKind.SNAPSHOT_CORRUPT)
    page = suite.run_until_final(suite.start(kept_spec("1s")))
    assert page["forks"][0]["failure"]["kind"] == "snapshot_corrupt"


def test_kept_time_is_charged_as_the_rest_of_its_attempt(suite: Stage) -> None:
    run_id, fork = kept(suite, kept_spec())
    suite.run_for(30)
    hold.release(suite.ports, PROJECT, fork.fork_id, None, None)
    page = suite.run_until_final(run_id)
    # 10 micro-dollars a second; all of it after hand-over is the task's.
    assert page["cost"]["tasks_usd"] >= 0.0003
    assert page["cost"]["environment_usd"] == 0
