"""Events as rows: numbers, bounds, pages; and the rule by which a run stops itself, with what it tells."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.domain.event import MAX_DATA_BYTES, Event, EventKind
from app.domain.fork import EndReason
from app.domain.money import NS_PER_SECOND
from app.domain.placement import choose
from app.domain.run import Closing, Exec, ExecPurpose, ExecResult, Run, StopWhen
from app.errors import NotFound, StaleClaim
from infra.store import create_store
from infra.store.events import of_run, tell
from tests import builders as a
from tests.contract.event_laws import Follower, check_events
from tests.contract.rows import Rows


def told(rows: Rows, run_id: str, after: int = 0, limit: int = 1000) -> tuple[Event, ...]:
    return rows.store.runs.events(a.PROJECT, run_id, after, limit)[0]


def kinds(rows: Rows, run_id: str) -> list[str]:
    return [event.kind.value for event in told(rows, run_id)]


def held_command(rows: Rows, fork_id: str, exec_id: str) -> Exec:
    asked = Exec(exec_id, fork_id, "", a.PROJECT, ExecPurpose.HELD, a.COMMAND)
    return rows.store.execs.request(asked)[0]


def test_a_life_is_told_from_its_start_to_its_end(rows: Rows) -> None:
    claimed = rows.started()
    run_id = claimed.run.run_id
    rows.close(rows.ready(claimed), at_s=4)
    assert kinds(rows, run_id) == [
        "run_started",
        "placed",
        "restoring",
        "checking",
        "ready",
        "fork_ended",
        "run_ended",
    ]
    placed, restoring, ended = (told(rows, run_id)[number] for number in (1, 2, 5))
    assert placed.host_id == a.HOST
    assert placed.reason
    assert restoring.attempt_id == claimed.attempt.attempt_id
    assert ended.reason == EndReason.COMMAND_PASSED
    assert (ended.data["outcome"], ended.data["reward"]) == ("passed", 1.0)


def test_a_replacement_tells_what_failed(rows: Rows) -> None:
    claimed = rows.started()
    rows.close(claimed, at_s=3, then=None, failure=a.failed())
    failed, replaced = told(rows, claimed.run.run_id)[-2:]
    assert failed.kind is EventKind.ATTEMPT_FAILED
    assert failed.data["failure"] == a.failed().as_dict()
    assert failed.attempt_id == claimed.attempt.attempt_id
    assert (replaced.kind, replaced.host_id) == (EventKind.REPLACED, None)


def test_commands_of_a_held_fork_tell_when_it_is_ready_again(rows: Rows) -> None:
    claimed = rows.ready(rows.started(hold_ns=600 * NS_PER_SECOND))
    one, two = (held_command(rows, claimed.fork.fork_id, f"exec_{n}") for n in (1, 2))
    for each in (one, two):
        assert rows.store.execs.intend(claimed, each)
    for each in (one, two):
        ended = Exec(
            each.exec_id,
            each.fork_id,
            each.attempt_id,
            a.PROJECT,
            ExecPurpose.HELD,
            a.COMMAND,
            result=ExecResult(exit_code=3),
        )
        assert rows.store.execs.finish(claimed, ended)
        assert not rows.store.execs.finish(claimed, ended)
    last = told(rows, claimed.run.run_id)[-4:]
    assert [(event.kind.value, event.data["exec_id"], event.data["state"]) for event in last] == [
        ("command_intended", "exec_1", "running"),
        ("command_intended", "exec_2", "running"),
        ("command_ended", "exec_1", "running"),
        ("command_ended", "exec_2", "ready"),
    ]
    assert last[-1].data["exit_code"] == 3


def test_what_is_refused_or_done_twice_tells_nothing(rows: Rows) -> None:
    claimed = rows.started()
    rows.ready(claimed)
    before = kinds(rows, claimed.run.run_id)
    rows.store.attempts.ready(claimed, 3 * NS_PER_SECOND, ())
    other = rows.store.attempts.adopt(claimed.attempt.attempt_id, a.HOST, "worker2")
    assert other is not None
    with pytest.raises(StaleClaim):
        rows.close(claimed, at_s=9)
    assert kinds(rows, claimed.run.run_id) == [*before, "adopted"]


def test_evidence_is_cut_to_what_an_event_may_say(rows: Rows) -> None:
    claimed = rows.started()
    evidence: dict[str, Any] = {
        "console_tail": "x\0" * 40_000,
        "events": [{"name": "RESET" * 1000}] * 500,
        "deep": {"a": {"b": {"c": {"d": {"e": {"f": {"g": 1}}}}}}},
        "k" * 100_000: 1,
    }
    failure = a.failed(evidence=evidence)
    rows.close(claimed, 3, EndReason.ENVIRONMENT_FAILED, failure)
    failed = next(e for e in told(rows, claimed.run.run_id) if e.kind is EventKind.ATTEMPT_FAILED)
    assert len(json.dumps(failed.data)) <= MAX_DATA_BYTES
    shown: Any = failed.data["failure"]
    assert (shown["kind"], shown["message"]) == (failure.kind, failure.message)


def test_pages_of_a_run_and_of_no_other(rows: Rows) -> None:
    rows.host()
    runs = [rows.start(2) for _ in range(3)]
    rows.place()
    numbers: list[int] = []
    after, final = 0, False
    while len(numbers) < 3:
        (event,), final = rows.store.runs.events(a.PROJECT, runs[1].run_id, after, 1)
        after = event.number
        numbers.append(after)
    assert (numbers, final) == ([1, 2, 3], False)
    with pytest.raises(NotFound, match="there is no run"):
        rows.store.runs.events("another", runs[1].run_id, 0, 10)


def test_a_final_page_is_the_last(rows: Rows) -> None:
    claimed = rows.started()
    rows.close(claimed, at_s=3)
    events = rows.store.runs.events
    run_id, last = claimed.run.run_id, len(kinds(rows, claimed.run.run_id))
    assert not events(a.PROJECT, run_id, 0, last - 1)[1]
    assert events(a.PROJECT, run_id, 0, last)[1]
    assert events(a.PROJECT, run_id, last, 10) == ((), True)


def test_a_host_that_is_silent_loses_what_was_placed_there(rows: Rows) -> None:
    rows.host()
    runs = [rows.start(2), rows.start(1)]
    rows.place()
    rows.clock.advance(60)
    assert rows.store.hosts.unassign_dead() == 3
    for run in runs:
        unplaced = told(rows, run.run_id)[-1]
        assert (unplaced.kind, unplaced.host_id) == (EventKind.UNPLACED, None)
        assert unplaced.reason is not None
        assert a.HOST in unplaced.reason


def tell_and_fail(rows: Rows, run: Run) -> None:
    with rows.store.database.write() as at:
        tell(at, [of_run(EventKind.RUN_STOPPED, run)])
        raise InterruptedError


def strict(rows: Rows, count: int, share: float) -> str:
    rows.host()
    return rows.start(count, stop_when=StopWhen(share)).run_id


def test_the_rule_stops_what_waits_and_what_runs_in_one_transaction(rows: Rows) -> None:
    run_id = strict(rows, 20, 0.1)
    assert rows.place() == 16
    first, second, third = (rows.open() for _ in range(3))
    closed = rows.close(first, 3, EndReason.ENVIRONMENT_FAILED, a.failed())
    assert closed.stopping == ()
    assert rows.run(run_id).stopped is None
    closed = rows.close(second, 3, EndReason.ENVIRONMENT_FAILED, a.failed())
    assert [attempt.attempt_id for attempt in closed.stopping] == [third.attempt.attempt_id]
    stopped = rows.run(run_id).stopped
    assert stopped is not None
    assert (stopped.env_failed, stopped.forks) == (2, 18)
    waiting = [fork for fork in rows.store.runs.forks(run_id) if fork.attempts == 0]
    assert len(waiting) == 17
    assert {fork.reason for fork in waiting} == {EndReason.STOPPED_BY_RULE}
    assert rows.fork(third.fork.fork_id).stop_asked is EndReason.STOPPED_BY_RULE
    assert rows.close(third, 4, EndReason.COMMAND_PASSED).run_ended
    assert rows.fork(third.fork.fork_id).reason is EndReason.COMMAND_PASSED
    assert kinds(rows, run_id).count("run_stopped") == 1


def test_the_rule_fires_in_the_queue(rows: Rows) -> None:
    """Forks that wait too long fail of their environment; the rest of their run is stopped with them."""
    strict(rows, 4, 0.5)
    rows.place()
    running, failed = rows.open(), rows.open()
    rows.clock.advance(3599)
    rows.close(failed, 3, None, a.failed())
    rows.clock.advance(2)
    closed = rows.expire_queued()
    assert len(closed) == 1
    assert [each.attempt_id for each in closed[-1].stopping] == [running.attempt.attempt_id]
    again = rows.fork(failed.fork.fork_id)
    assert again.reason is EndReason.STOPPED_BY_RULE


def test_a_machine_that_is_closed_by_time_counts(rows: Rows) -> None:
    run_id = strict(rows, 3, 0.3)
    rows.place()
    claimed = rows.ready(rows.open())
    task = Exec(
        "task", claimed.fork.fork_id, claimed.attempt.attempt_id, a.PROJECT, ExecPurpose.TASK, None
    )
    rows.store.execs.intend(claimed, task)
    rows.clock.advance(2 * 3600)
    (late,) = rows.store.attempts.overdue()
    assert rows.close_by_time(late.attempt_id, "silent") is not None
    assert rows.run(run_id).stopped is not None
    assert {fork.reason for fork in rows.store.runs.forks(run_id)[1:]} == {
        EndReason.STOPPED_BY_RULE
    }


def test_numbers_times_and_commits_have_one_order(url: str) -> None:
    """By the database's own clock, threads of several stores at once, and a reader beside them."""
    stores = [create_store(url) for _ in range(3)]
    first = stores[0]
    first.hosts.register(a.fingerprint(memory_mib=1 << 20, disk_gib=1 << 20), 1000)
    run, forks = a.step(60)
    first.runs.start(run, forks, None)
    first.hosts.assign(choose(first.hosts.waiting(1000), first.hosts.list()))
    follower = Follower(first, a.PROJECT, run.run_id)

    def work(number: int) -> None:
        store = stores[number % len(stores)]
        while claimed := store.attempts.open(a.HOST, f"w{number}", "boot", 0, None):
            sample = claimed.attempt.attempt_id.ljust(32, "0")
            ready = store.attempts.ready(store.attempts.checking(claimed, (), sample), 1, ())
            store.attempts.close(ready, Closing(2, EndReason.COMMAND_PASSED))

    with ThreadPoolExecutor(6) as threads:
        working = [threads.submit(work, number) for number in range(6)]
        while not all(each.done() for each in working):
            follower.read()
        for each in working:
            each.result()
    for run_id in first.meters.unsettled():
        first.meters.settle(run_id)
    follower.read()
    assert follower.final
    times = [event.at_ns for event in follower.heard]
    assert times == sorted(times)
    with first.database.read() as at:
        check_events(at)
    for store in stores:
        store.close()


def test_what_is_undone_takes_no_number(rows: Rows) -> None:
    claimed = rows.started()
    run_id = claimed.run.run_id
    before = kinds(rows, run_id)
    with pytest.raises(InterruptedError):
        tell_and_fail(rows, claimed.run)
    assert kinds(rows, run_id) == before
    rows.ready(claimed)
    assert [event.number for event in told(rows, run_id)] == [1, 2, 3, 4, 5]
