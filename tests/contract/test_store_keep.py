"""Forks that are kept: how many, what still may be done with them, and that their verdict stands."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from app.domain.fork import EndReason, ForkState, Outcome
from app.domain.money import NS_PER_SECOND
from app.domain.run import (
    MAX_PARALLEL_EXECS,
    Blob,
    Claimed,
    Exec,
    ExecPurpose,
    ExecResult,
    ExecState,
    Result,
    Verdict,
)
from app.errors import Conflict, NotYet, StaleClaim
from tests import builders as a
from tests.contract.rows import Rows

FAILED = Verdict(EndReason.COMMAND_FAILED, Result(exit_code=7, duration_ns=5, reward=0.25))
BROKEN = Verdict(EndReason.ENVIRONMENT_FAILED, failure=a.failed())


def test_a_kept_fork_is_ready_and_its_verdict_is_kept_with_it(rows: Rows) -> None:
    running = _running(rows, keep_failed=1)
    assert rows.store.attempts.keep(running, FAILED) is True
    fork = rows.fork(running.fork.fork_id)
    assert (fork.state, fork.kept, fork.outcome) == (ForkState.READY, FAILED.reason, None)
    assert fork.result == FAILED.result
    assert fork.kept_until_ns == rows.clock.wall_ns() + running.attempt.lease_ns
    assert rows.store.runs.tallies((fork.run_id,))[fork.run_id].kept == 1


def test_kept_again_nothing_changes(rows: Rows) -> None:
    running = _running(rows, keep_failed=1)
    rows.store.attempts.keep(running, FAILED)
    before = rows.fork(running.fork.fork_id)
    assert rows.store.attempts.keep(running, BROKEN) is True
    assert rows.fork(running.fork.fork_id) == before


@pytest.mark.parametrize(
    "reason", [EndReason.COMMAND_PASSED, EndReason.RELEASED_FAILED, EndReason.CANCELLED]
)
def test_only_failures_are_kept(rows: Rows, reason: EndReason) -> None:
    running = _running(rows, keep_failed=1)
    assert rows.store.attempts.keep(running, replace(FAILED, reason=reason)) is False


def test_what_is_to_stop_or_is_not_up_yet_or_is_anothers_is_not_kept(rows: Rows) -> None:
    claimed = rows.started(2, keep_failed=2)
    assert rows.store.attempts.keep(claimed, BROKEN) is False
    other = replace(claimed, attempt=replace(claimed.attempt, claim="another"))
    with pytest.raises(StaleClaim):
        rows.store.attempts.keep(other, BROKEN)
    ready = rows.ready(rows.open())
    rows.store.runs.ask_stop(ready.run.run_id, EndReason.CANCELLED)
    assert rows.store.attempts.keep(ready, BROKEN) is False


def test_ten_that_fail_at_once_are_kept_no_more_often_than_asked_for(rows: Rows) -> None:
    first = _running(rows, count=10, keep_failed=3)
    all_ten = [first, *(_intended(rows, rows.ready(rows.open())) for _ in range(9))]
    together = threading.Barrier(len(all_ten))

    def keep(one: Claimed) -> bool:
        together.wait(timeout=30)
        return rows.store.attempts.keep(one, FAILED)

    with ThreadPoolExecutor(len(all_ten)) as threads:
        assert sorted(threads.map(keep, all_ten)).count(True) == 3


def test_one_that_ended_makes_room_for_another(rows: Rows) -> None:
    first = _running(rows, count=2, keep_failed=1)
    second = _intended(rows, rows.ready(rows.open()))
    assert rows.store.attempts.keep(first, FAILED)
    assert not rows.store.attempts.keep(second, FAILED)
    rows.close(first, 9, EndReason.CANCELLED)
    assert rows.store.attempts.keep(second, FAILED)


@pytest.mark.parametrize("then", [EndReason.CANCELLED, EndReason.RUN_EXHAUSTED, None])
def test_whoever_closes_it_the_verdict_stands(rows: Rows, then: EndReason | None) -> None:
    running = _running(rows, keep_failed=1)
    rows.store.attempts.keep(running, FAILED)
    rows.close(running, 9, then, failure=a.failed() if then is None else None)
    fork = rows.fork(running.fork.fork_id)
    assert (fork.outcome, fork.reason) == (Outcome.FAILED, EndReason.COMMAND_FAILED)
    assert (fork.result, fork.failure) == (FAILED.result, None)
    (line,) = rows.store.runs.attempts(fork.run_id)
    assert (line.environment_micros, line.attempt.failure) == (0, None)
    assert line.tasks_micros > 0


def test_an_environment_failure_that_was_kept_is_charged_as_one(rows: Rows) -> None:
    running = _running(rows, keep_failed=1)
    rows.store.attempts.keep(running, BROKEN)
    rows.close(running, 9, EndReason.CANCELLED)
    (line,) = rows.store.runs.attempts(running.run.run_id)
    assert line.attempt.failure == BROKEN.failure
    assert (line.tasks_micros, line.verification_micros) == (0, 0)
    assert line.environment_micros == line.attempt.charged_micros > 0


def test_a_host_that_is_lost_leaves_the_verdict(rows: Rows) -> None:
    running = _running(rows, keep_failed=1)
    rows.store.attempts.keep(running, FAILED)
    rows.clock.advance(running.attempt.lease_ns / NS_PER_SECOND + 60)
    assert rows.close_by_time(running.attempt.attempt_id, "silent") is not None
    fork = rows.fork(running.fork.fork_id)
    assert (fork.reason, fork.attempts) == (EndReason.COMMAND_FAILED, 1)


def test_its_lease_grows_no_more(rows: Rows) -> None:
    running = _running(rows, count=2, budget_micros=120_000, keep_failed=1)
    rows.close(rows.ready(rows.open()), 3)  # what it held is the pool's now
    assert running.run.run_id in rows.store.meters.sharable()
    rows.store.attempts.keep(running, FAILED)
    fork = rows.fork(running.fork.fork_id)
    assert fork.grant_micros < fork.worst_micros
    assert running.run.run_id not in rows.store.meters.sharable()
    assert rows.store.meters.share(running.run.run_id) == 0


def test_a_release_of_a_kept_fork_is_a_wish_without_a_grade(rows: Rows) -> None:
    running = _running(rows, keep_failed=1)
    rows.store.attempts.keep(running, FAILED)
    fork_id, released = running.fork.fork_id, EndReason.RELEASED
    for reason, reward in ((EndReason.RELEASED_PASSED, None), (released, 0.5)):
        with pytest.raises(Conflict) as caught:
            rows.store.runs.release(a.PROJECT, fork_id, reason, reward)
        assert caught.value.code == "verdict_stands"
    for _ in range(2):
        machine = rows.store.runs.release(a.PROJECT, fork_id, released, None)
        assert machine is not None
        assert machine.attempt_id == running.attempt.attempt_id
    rows.close(running, 9, released)
    assert rows.store.runs.release(a.PROJECT, fork_id, released, None) is None
    fork = rows.fork(fork_id)
    assert (fork.outcome, fork.result.reward) == (Outcome.FAILED, 0.25)


def test_commands_run_in_it_and_are_nobodys_task(rows: Rows) -> None:
    ready = rows.ready(rows.started(keep_failed=1))
    rows.store.attempts.keep(ready, BROKEN)
    asked, _ = rows.store.execs.request(_exec(ready, "e1"))
    running = rows.store.execs.intend(ready, asked)
    assert running is not None
    assert rows.fork(ready.fork.fork_id).state is ForkState.RUNNING
    rows.store.execs.finish(ready, replace(running, result=ExecResult(exit_code=0)))
    assert rows.fork(ready.fork.fork_id).state is ForkState.READY
    present = rows.store.attempts.get(ready.attempt.attempt_id)
    assert present is not None
    assert present.attempt.intent is False


def test_any_machine_can_be_looked_at_and_a_look_is_no_command(rows: Rows) -> None:
    claimed = rows.started()
    look, claim = rows.store.execs.request(_exec(claimed, "look", ExecPurpose.CONSOLE))
    assert (look.state, claim) == (ExecState.QUEUED, "worker1")
    seen = replace(look, result=ExecResult(exit_code=0, stdout="console"))
    assert rows.store.execs.finish(claimed, seen)
    assert rows.store.execs.of_fork(claimed.fork.fork_id, 10) == ()
    assert rows.fork(claimed.fork.fork_id).state is ForkState.RESTORING
    rows.close(claimed, 9)
    with pytest.raises(Conflict) as caught:
        rows.store.execs.request(_exec(claimed, "late", ExecPurpose.CONSOLE))
    assert caught.value.code == "fork_ended"


def test_looks_are_bounded_and_old_ones_removed(rows: Rows) -> None:
    claimed = rows.started()
    for number in range(MAX_PARALLEL_EXECS):
        rows.store.execs.request(_exec(claimed, f"look{number}", ExecPurpose.CONSOLE))
    with pytest.raises(NotYet):
        rows.store.execs.request(_exec(claimed, "one", ExecPurpose.OUTPUT))
    for number in range(MAX_PARALLEL_EXECS):
        look = rows.store.execs.find(f"look{number}")
        assert look is not None
        rows.store.execs.finish(claimed, replace(look, result=ExecResult(exit_code=0)))
    rows.clock.advance(300)
    rows.store.execs.request(_exec(claimed, "one", ExecPurpose.OUTPUT))
    assert rows.store.execs.find("look0") is None


def test_a_fork_without_a_machine_cannot_be_looked_at(rows: Rows) -> None:
    rows.host()
    run = rows.start()
    (fork,) = rows.store.runs.forks(run.run_id)
    asked = Exec("look", fork.fork_id, "", a.PROJECT, ExecPurpose.CONSOLE, None)
    with pytest.raises(NotYet) as caught:
        rows.store.execs.request(asked)
    assert caught.value.code == "fork_not_ready"
    assert rows.store.runs.machines(fork.fork_id) == ()
    assert rows.store.runs.console(fork.fork_id) is None


def test_commands_are_listed_without_what_they_printed(rows: Rows) -> None:
    held = rows.ready(rows.started(hold_ns=60 * NS_PER_SECOND))
    blob = Blob("a" * 64, 9)
    printed = ExecResult(exit_code=3, stdout="much \u0001 \ufffd", duration_ns=7, stdout_blob=blob)
    for number in range(3):
        asked, _ = rows.store.execs.request(_exec(held, f"e{number}"))
        rows.store.execs.finish(held, replace(asked, result=printed))
        rows.clock.advance(1)
    listed = rows.store.execs.of_fork(held.fork.fork_id, 2)
    assert [each.exec_id for each in listed] == ["e1", "e2"]
    assert {each.result for each in listed} == {replace(printed, stdout="", stderr="")}
    whole = rows.store.execs.get(a.PROJECT, held.fork.fork_id, "e2")
    assert whole.result == printed


def test_what_is_noted_of_a_command_outlives_its_loss(rows: Rows) -> None:
    running = _running(rows)
    (task,) = rows.store.execs.unfinished(running.attempt.attempt_id)
    rows.store.execs.note(running, replace(task, result=ExecResult(exit_code=75)))
    (present,) = rows.store.execs.unfinished(running.attempt.attempt_id)
    assert present.state is ExecState.RUNNING
    rows.close(running, 9, EndReason.ENVIRONMENT_FAILED, failure=a.failed())
    lost = rows.store.execs.find(task.exec_id)
    assert lost is not None
    assert (lost.state, lost.result) == (ExecState.LOST, ExecResult(exit_code=75))
    with pytest.raises(StaleClaim):
        rows.store.execs.note(running, replace(task, result=ExecResult()))


def test_machines_say_when_they_lived_and_what_is_left(rows: Rows) -> None:
    claimed = rows.ready(rows.started())
    rows.clock.advance(10)
    (machine,) = rows.store.runs.machines(claimed.fork.fork_id)
    assert machine.left_ns == claimed.attempt.lease_ns - 10 * NS_PER_SECOND
    assert machine.ready_ns is not None
    rows.close(claimed, 9)
    (machine,) = rows.store.runs.machines(claimed.fork.fork_id)
    assert (machine.left_ns, machine.life.closed_ns) == (None, rows.clock.wall_ns())
    assert machine.cost_micros == machine.attempt.charged_micros > 0
    assert rows.store.runs.console(claimed.fork.fork_id) == (claimed.attempt.attempt_id, "")


def _running(
    rows: Rows, count: int = 1, budget_micros: int | None = None, keep_failed: int = 0
) -> Claimed:
    """The first fork of a run, its task intended."""
    started = rows.started(count, budget_micros, keep_failed=keep_failed)
    return _intended(rows, rows.ready(started))


def _intended(rows: Rows, ready: Claimed) -> Claimed:
    task = _exec(ready, f"task_{ready.attempt.attempt_id}", ExecPurpose.TASK)
    assert rows.store.execs.intend(ready, task) is not None
    return ready


def _exec(claimed: Claimed, exec_id: str, purpose: ExecPurpose = ExecPurpose.HELD) -> Exec:
    spec = a.COMMAND if purpose in (ExecPurpose.HELD, ExecPurpose.TASK) else None
    fork_id, attempt_id = claimed.fork.fork_id, claimed.attempt.attempt_id
    return Exec(exec_id, fork_id, attempt_id, a.PROJECT, purpose, spec)
