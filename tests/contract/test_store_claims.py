"""Claims: one worker per machine, late results dropped, nothing started twice."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.domain.checks import Check
from app.domain.fork import EndReason, ForkState, Outcome
from app.domain.run import Claimed, Closing, Exec, ExecPurpose, ExecState, Result
from app.errors import Conflict, FailureKind, StaleClaim
from tests import builders as a
from tests.contract.rows import Rows

CHECKS = (Check("barrier", True, "nonce 1", 0.1), Check("warm", True, "boot_id 1", 0.1))


def test_nothing_is_claimed_that_is_not_placed_here(rows: Rows) -> None:
    rows.host()
    rows.host("host1", slots=0)
    rows.start()
    assert rows.try_open() is None
    rows.place()
    assert rows.try_open("host1") is None
    assert rows.try_open() is not None
    assert rows.try_open() is None


def test_forks_are_claimed_in_order(rows: Rows) -> None:
    rows.host()
    older = rows.start(2)
    rows.clock.advance(1)
    younger = rows.start(1)
    rows.place()
    claimed = [rows.open() for _ in range(3)]
    assert [(each.run.run_id, each.fork.index) for each in claimed] == [
        (older.run_id, 0),
        (older.run_id, 1),
        (younger.run_id, 0),
    ]


def test_two_workers_never_get_the_same_fork(rows: Rows) -> None:
    rows.host()
    rows.start(16)
    rows.place()
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(lambda n: rows.try_open(claim=f"worker{n}"), range(24)))
    taken = [claimed.fork.fork_id for claimed in claims if claimed is not None]
    assert len(taken) == len(set(taken)) == 16


def test_a_run_is_stopped_while_workers_claim_its_forks(rows: Rows) -> None:
    rows.host()
    run = rows.start(12)
    rows.place()
    start = threading.Barrier(7)

    def claim(number: int) -> list[Claimed]:
        start.wait(timeout=20)
        found = (rows.try_open(claim=f"worker{number}") for _ in range(2))
        return [claimed for claimed in found if claimed is not None]

    def stop() -> None:
        start.wait(timeout=20)
        rows.store.runs.ask_stop(run.run_id, EndReason.CANCELLED)

    with ThreadPoolExecutor(7) as pool:
        stopping = pool.submit(stop)
        claimed = [each for found in pool.map(claim, range(6)) for each in found]
        stopping.result(timeout=20)
    rows.check_laws()
    for each in claimed:
        assert rows.fork(each.fork.fork_id).stop_asked is EndReason.CANCELLED
        rows.close(each, 1, EndReason.CANCELLED)
    assert {fork.outcome for fork in rows.store.runs.forks(run.run_id)} == {Outcome.CANCELLED}


def test_so_many_forks_of_a_host_come_up_at_once(rows: Rows) -> None:
    rows.host()
    rows.start(4)
    rows.place()

    def next_of_two() -> Claimed | None:
        return rows.store.attempts.open(a.HOST, "worker1", "boot", 0, None, 2)

    first, second = next_of_two(), next_of_two()
    assert first is not None
    assert second is not None
    assert next_of_two() is None
    rows.ready(first)
    assert next_of_two() is not None
    rows.close(second, 1, None, a.failed())
    assert next_of_two() is not None


def test_a_template_is_claimed_only_by_its_id(rows: Rows) -> None:
    rows.host()
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    rows.place()
    assert rows.try_open() is None
    claimed = rows.store.attempts.open(a.HOST, "worker1", "boot", 0, template.fork_id)
    assert claimed is not None
    assert rows.store.attempts.open(a.HOST, "worker2", "boot", 0, template.fork_id) is None


def test_a_fork_goes_from_restore_to_ready_with_its_checks(rows: Rows) -> None:
    claimed = rows.started()
    checking = rows.store.attempts.checking(claimed, CHECKS[:1], "5a" * 16)
    assert checking.fork.state is ForkState.CHECKING
    rows.store.attempts.checked(checking, CHECKS)
    ready = rows.store.attempts.ready(checking, 3, CHECKS)
    assert ready == rows.store.attempts.get(claimed.attempt.attempt_id)
    assert (ready.fork.state, ready.fork.checks) == (ForkState.READY, CHECKS)
    assert ready.attempt.ready_boot_ns == 3
    with pytest.raises(Conflict, match="cannot go from ready to checking"):
        rows.store.attempts.checking(ready, CHECKS, "5b" * 16)


def test_no_two_machines_of_a_run_have_the_same_entropy(rows: Rows) -> None:
    first = rows.started(2)
    second = rows.open()
    rows.store.attempts.checking(first, CHECKS, "5a" * 16)
    with pytest.raises(Conflict) as caught:
        rows.store.attempts.checking(second, CHECKS, "5a" * 16)
    assert caught.value.code == "duplicate_sample"
    present = rows.store.attempts.get(second.attempt.attempt_id)
    assert present is not None
    assert present.fork.state is ForkState.RESTORING


def test_an_adopted_attempt_drops_what_the_old_worker_still_says(rows: Rows) -> None:
    old = rows.started()
    adopted = rows.store.attempts.adopt(old.attempt.attempt_id, a.HOST, "worker2")
    assert adopted is not None
    assert adopted.attempt.claim == "worker2"
    task = _exec(old, "exec_1")
    late = (
        lambda: rows.ready(old),
        lambda: rows.store.attempts.checked(old, CHECKS),
        lambda: rows.close(old, at_s=5),
        lambda: rows.store.execs.intend(old, task),
        lambda: rows.store.execs.finish(old, task),
    )
    for write in late:
        with pytest.raises(StaleClaim):
            write()
    assert rows.store.attempts.get(old.attempt.attempt_id) == adopted
    assert rows.close(rows.ready(adopted), at_s=5).run_ended


def test_only_an_open_attempt_of_the_same_host_is_adopted(rows: Rows) -> None:
    claimed = rows.started()
    attempt_id = claimed.attempt.attempt_id
    assert rows.store.attempts.adopt(attempt_id, "host1", "worker2") is None
    assert rows.store.attempts.adopt("att_none", a.HOST, "worker2") is None
    rows.close(claimed, at_s=5)
    assert rows.store.attempts.adopt(attempt_id, a.HOST, "worker2") is None


def test_a_host_finds_what_it_holds(rows: Rows) -> None:
    first = rows.started(2)
    second = rows.open()
    rows.close(first, at_s=1)
    assert rows.store.attempts.held_by(a.HOST) == (
        rows.store.attempts.get(second.attempt.attempt_id),
    )
    assert rows.store.attempts.held_by("host1") == ()
    assert rows.store.attempts.get("att_none") is None


def test_a_command_that_may_have_started_is_not_run_again(rows: Rows) -> None:
    claimed = rows.ready(rows.started())
    rows.store.execs.intend(claimed, _exec(claimed, "exec_1"))
    # The caller's copy is from before the intent: the row decides.
    rows.close(claimed, at_s=5, then=None, failure=a.failed())
    assert rows.fork(claimed.fork.fork_id).outcome is Outcome.ENV_FAILED


def test_unless_the_caller_allowed_it(rows: Rows) -> None:
    claimed = rows.ready(rows.started(rerun_started=True))
    rows.store.execs.intend(claimed, _exec(claimed, "exec_1"))
    rows.close(claimed, at_s=5, then=None, failure=a.failed())
    assert rows.fork(claimed.fork.fork_id).state is ForkState.QUEUED


def test_a_faulty_host_is_avoided_and_a_faulty_machine_is_not(rows: Rows) -> None:
    guest, host = rows.started(2), rows.open()
    rows.close(guest, 1, None, a.failed(FailureKind.GUEST_LOST))
    rows.close(host, 1, None, a.failed(FailureKind.HOST_DISK_FULL))
    assert rows.fork(guest.fork.fork_id).avoid_hosts == ()
    assert rows.fork(host.fork.fork_id).avoid_hosts == (a.HOST,)
    rows.host("host1")
    assert rows.place() == 2
    assert rows.fork(host.fork.fork_id).host_id == "host1"


def test_a_fork_that_is_to_stop_gets_no_other_machine(rows: Rows) -> None:
    claimed = rows.started()
    rows.store.runs.ask_stop(claimed.run.run_id, EndReason.CANCELLED)
    closed = rows.close(claimed, at_s=5, then=None, failure=a.failed())
    assert closed.run_ended
    assert rows.fork(claimed.fork.fork_id).outcome is Outcome.CANCELLED


def test_commands_of_a_lost_machine_are_lost_with_its_failure(rows: Rows) -> None:
    claimed = rows.ready(rows.started())
    rows.store.execs.intend(claimed, _exec(claimed, "exec_1"))
    closed = rows.close(claimed, 5, EndReason.ENVIRONMENT_FAILED, a.failed())
    assert closed.lost_exec_ids == ("exec_1",)
    lost = rows.store.execs.find("exec_1")
    assert lost is not None
    assert (lost.state, lost.failure) == (ExecState.LOST, a.failed())


def test_a_replacement_begins_anew(rows: Rows) -> None:
    first = rows.started()
    rows.store.attempts.checking(first, CHECKS, "5a" * 16)
    rows.store.attempts.close(first, Closing(5, None, failure=a.failed(), checks=CHECKS))
    waiting = rows.fork(first.fork.fork_id)
    assert (waiting.checks, waiting.attempt_id) == (CHECKS, None)
    rows.place()
    second = rows.open(at_s=1)
    assert (second.fork.checks, second.fork.result) == ((), Result())
    assert second.attempt.attempt_id != first.attempt.attempt_id


def _exec(claimed: Claimed, exec_id: str) -> Exec:
    return Exec(
        exec_id=exec_id,
        fork_id=claimed.fork.fork_id,
        attempt_id=claimed.attempt.attempt_id,
        project_id=a.PROJECT,
        purpose=ExecPurpose.TASK,
        spec=a.COMMAND,
    )
