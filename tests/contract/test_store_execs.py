"""Commands: asked once, intended before they start, ended once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from app.domain.fork import EndReason, ForkState
from app.domain.money import NS_PER_SECOND
from app.domain.run import (
    MAX_PARALLEL_EXECS,
    Claimed,
    Exec,
    ExecPurpose,
    ExecResult,
    ExecState,
    FileMove,
)
from app.errors import Conflict, NotFound, NotYet
from tests import builders as a
from tests.contract.rows import Rows

RESULT = ExecResult(exit_code=3, stdout="out", stderr="err", duration_ns=5)


def test_a_held_command_from_asked_to_ended(rows: Rows) -> None:
    held = _held(rows)
    asked, claim = rows.store.execs.request(_exec(held, "e1"))
    assert (asked.state, asked.attempt_id) == (ExecState.QUEUED, held.attempt.attempt_id)
    assert claim == held.attempt.claim
    assert rows.store.execs.queued_for(a.HOST, claim) == (asked,)
    assert rows.store.execs.queued_for(a.HOST, "another worker") == ()
    running = rows.store.execs.intend(held, asked)
    assert running == replace(asked, state=ExecState.RUNNING)
    assert rows.store.execs.queued_for(a.HOST, claim) == ()
    assert _state(rows, held) is ForkState.RUNNING
    assert rows.store.execs.finish(held, replace(running, result=RESULT))
    ended = rows.store.execs.get(a.PROJECT, held.fork.fork_id, "e1")
    assert (ended.state, ended.result) == (ExecState.ENDED, RESULT)
    assert _state(rows, held) is ForkState.READY
    assert rows.store.execs.unfinished(held.attempt.attempt_id) == ()


def test_the_same_command_again_is_the_same_row(rows: Rows) -> None:
    held = _held(rows)
    asked, _ = rows.store.execs.request(_exec(held, "e1"))
    assert rows.store.execs.request(_exec(held, "e1"))[0] == asked
    rows.store.execs.intend(held, asked)
    rows.store.execs.finish(held, replace(asked, result=RESULT))
    again, _ = rows.store.execs.request(_exec(held, "e1"))
    assert again.result == RESULT
    other = replace(_exec(held, "e1"), spec=replace(a.COMMAND, argv=("true",)))
    with pytest.raises(Conflict) as caught:
        rows.store.execs.request(other)
    assert caught.value.code == "exec_id_taken"


def test_an_intent_is_committed_once(rows: Rows) -> None:
    held = _held(rows)
    asked, _ = rows.store.execs.request(_exec(held, "e1"))
    assert rows.store.execs.intend(held, asked) is not None
    assert rows.store.execs.intend(held, asked) is None
    present = rows.store.attempts.get(held.attempt.attempt_id)
    assert present is not None
    assert present.attempt.intent


def test_a_command_of_the_run_itself_needs_no_asking(rows: Rows) -> None:
    claimed = rows.ready(rows.started())
    task = replace(_exec(claimed, "task_1"), purpose=ExecPurpose.TASK)
    running = rows.store.execs.intend(claimed, task)
    assert running is not None
    assert running.state is ExecState.RUNNING
    assert _state(rows, claimed) is ForkState.RUNNING


def test_the_own_test_is_no_intent_of_the_task(rows: Rows) -> None:
    claimed = rows.started()
    checking = rows.store.attempts.checking(claimed, (), "5a" * 16)
    test = replace(_exec(checking, "test_1"), purpose=ExecPurpose.TEST)
    assert rows.store.execs.intend(checking, test) is not None
    present = rows.store.attempts.get(claimed.attempt.attempt_id)
    assert present is not None
    assert not present.attempt.intent
    assert present.fork.state is ForkState.CHECKING


def test_a_fork_stays_running_while_any_command_does(rows: Rows) -> None:
    held = _held(rows)
    for exec_id in ("e1", "e2"):
        rows.store.execs.request(_exec(held, exec_id))
        rows.store.execs.intend(held, _exec(held, exec_id))
    rows.store.execs.finish(held, replace(_exec(held, "e1"), result=RESULT))
    assert _state(rows, held) is ForkState.RUNNING
    rows.store.execs.finish(held, replace(_exec(held, "e2"), result=RESULT))
    assert _state(rows, held) is ForkState.READY


def test_an_end_is_stored_once(rows: Rows) -> None:
    held = _held(rows)
    asked, _ = rows.store.execs.request(_exec(held, "e1"))
    rows.store.execs.intend(held, asked)
    assert rows.store.execs.finish(held, replace(asked, result=RESULT))
    assert not rows.store.execs.finish(held, replace(asked, result=ExecResult(exit_code=9)))
    assert rows.store.execs.get(a.PROJECT, held.fork.fork_id, "e1").result == RESULT


def test_a_refused_file_move_ends_without_an_intent(rows: Rows) -> None:
    held = _held(rows)
    move = replace(
        _exec(held, "u1"), purpose=ExecPurpose.UPLOAD, spec=None, file=FileMove("/x", sha256="1")
    )
    asked, _ = rows.store.execs.request(move)
    refused = replace(asked, result=ExecResult(error=("bad_path", "is a directory")))
    assert rows.store.execs.finish(held, refused)
    assert rows.store.execs.find("u1") == replace(refused, state=ExecState.ENDED)


def test_what_a_download_found_is_kept(rows: Rows) -> None:
    held = _held(rows)
    move = replace(_exec(held, "d1"), purpose=ExecPurpose.DOWNLOAD, spec=None, file=FileMove("/x"))
    asked, _ = rows.store.execs.request(move)
    rows.store.execs.intend(held, asked)
    found = FileMove("/x", sha256="5a" * 32, size_bytes=5_000_000_000)
    rows.store.execs.finish(held, replace(asked, file=found, result=ExecResult()))
    assert rows.store.execs.get(a.PROJECT, held.fork.fork_id, "d1").file == found


def test_a_fork_takes_so_many_commands_at_once(rows: Rows) -> None:
    held = _held(rows)
    for number in range(MAX_PARALLEL_EXECS):
        rows.store.execs.request(_exec(held, f"e{number}"))
    with pytest.raises(NotYet) as caught:
        rows.store.execs.request(_exec(held, "e8"))
    assert caught.value.code == "too_many_execs"
    rows.store.execs.request(_exec(held, "e0"))
    rows.store.execs.intend(held, _exec(held, "e0"))
    rows.store.execs.finish(held, replace(_exec(held, "e0"), result=RESULT))
    rows.store.execs.request(_exec(held, "e8"))


def test_and_no_more_when_all_are_asked_at_once(rows: Rows) -> None:
    held = _held(rows)
    start = threading.Barrier(12)

    def ask(number: int) -> bool:
        start.wait(timeout=20)
        try:
            rows.store.execs.request(_exec(held, f"e{number}"))
        except NotYet:
            return False
        return True

    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(ask, range(12))) == MAX_PARALLEL_EXECS


def test_who_may_not_ask_is_told_why(rows: Rows) -> None:
    rows.host()
    waiting = rows.start(hold_ns=600 * NS_PER_SECOND)
    (fork,) = rows.store.runs.forks(waiting.run_id)
    _refused(rows, fork.fork_id, "fork_not_ready")
    _refused(rows, "fork_none", "unknown_fork")
    rows.place()
    held = rows.ready(rows.open())
    rows.store.runs.release(a.PROJECT, fork.fork_id, EndReason.RELEASED, None)
    _refused(rows, fork.fork_id, "fork_ended")
    rows.close(held, 5, EndReason.ENVIRONMENT_FAILED, a.failed())
    _refused(rows, fork.fork_id, "environment_failure")
    plain = rows.start()
    (unheld,) = rows.store.runs.forks(plain.run_id)
    _refused(rows, unheld.fork_id, "fork_not_held")


def test_another_projects_fork_takes_no_command(rows: Rows) -> None:
    held = _held(rows)
    with pytest.raises(NotFound):
        rows.store.execs.request(replace(_exec(held, "e1"), project_id="other"))
    rows.store.execs.request(_exec(held, "e1"))
    for project_id, fork_id in (("other", held.fork.fork_id), (a.PROJECT, "fork_none")):
        with pytest.raises(NotFound):
            rows.store.execs.get(project_id, fork_id, "e1")
    assert rows.store.execs.find("e2") is None


def test_nothing_starts_in_a_fork_that_is_to_stop(rows: Rows) -> None:
    held = _held(rows)
    asked, _ = rows.store.execs.request(_exec(held, "e1"))
    rows.store.runs.ask_stop(held.run.run_id, EndReason.CANCELLED)
    with pytest.raises(Conflict) as caught:
        rows.store.execs.intend(held, asked)
    assert caught.value.code == "stop_asked"
    closed = rows.close(held, 5, EndReason.CANCELLED)
    assert closed.lost_exec_ids == ("e1",)
    lost = rows.store.execs.find("e1")
    assert lost is not None
    assert (lost.state, lost.failure) == (ExecState.LOST, None)


def test_output_may_hold_anything(rows: Rows) -> None:
    held = _held(rows)
    asked, _ = rows.store.execs.request(_exec(held, "e1"))
    rows.store.execs.intend(held, asked)
    hostile = ExecResult(
        exit_code=0, stdout="\0 \ud800 \U0001f600 \x1b[31m", stderr='{"a": "\\u0000"}'
    )
    rows.store.execs.finish(held, replace(asked, result=hostile))
    kept = rows.store.execs.get(a.PROJECT, held.fork.fork_id, "e1").result
    assert kept == replace(hostile, stdout="\0 ? \U0001f600 \x1b[31m")


def _held(rows: Rows) -> Claimed:
    return rows.ready(rows.started(hold_ns=600 * NS_PER_SECOND))


def _state(rows: Rows, claimed: Claimed) -> ForkState:
    return rows.fork(claimed.fork.fork_id).state


def _refused(rows: Rows, fork_id: str, code: str) -> None:
    asked = Exec("e_refused", fork_id, "", a.PROJECT, ExecPurpose.HELD, a.COMMAND)
    with pytest.raises((Conflict, NotFound)) as caught:
        rows.store.execs.request(asked)
    assert caught.value.code == code
    assert rows.store.execs.find("e_refused") is None


def _exec(claimed: Claimed, exec_id: str) -> Exec:
    return Exec(exec_id, claimed.fork.fork_id, "", a.PROJECT, ExecPurpose.HELD, a.COMMAND)
