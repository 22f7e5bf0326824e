"""Runs and forks: how they are started, found, stopped and released."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import Connection

from app.domain.account import Receipt
from app.domain.fork import EndReason, ForkState, Outcome
from app.domain.money import NS_PER_SECOND
from app.domain.report import tally
from app.domain.run import Closing, Result, RunState
from app.domain.run_ledger import Move
from app.errors import Conflict, NotFound
from infra.store import bookings
from tests import builders as a
from tests.contract.rows import Rows

HELD = {"hold_ns": 600 * NS_PER_SECOND}


def test_a_run_is_read_as_it_was_started(rows: Rows) -> None:
    run, forks = a.step(3, budget_micros=200_000, labels=(("step", "17"),))
    rows.store.runs.start(run, forks, None)
    now_ns = rows.clock.wall_ns()
    assert rows.run(run.run_id) == replace(run, created_ns=now_ns)
    assert rows.store.runs.forks(run.run_id) == tuple(
        replace(fork, queued_ns=now_ns) for fork in forks
    )
    assert rows.fork(forks[1].fork_id).index == 1


def test_grants_that_do_not_add_up_start_nothing(rows: Rows) -> None:
    run, forks = a.step(2)
    with pytest.raises(ValueError, match="do not add up"):
        rows.store.runs.start(run, forks[:1], None)
    with pytest.raises(NotFound):
        rows.run(run.run_id)


def test_a_run_without_receipt_may_be_started_again(rows: Rows) -> None:
    assert rows.start().run_id != rows.start().run_id


def test_of_two_calls_with_one_key_one_happens(rows: Rows) -> None:
    steps = [a.step() for _ in range(6)]

    def start(number: int) -> str | None:
        run, forks = steps[number]
        try:
            rows.store.runs.start(run, forks, Receipt("key", "sha", {"run_id": run.run_id}))
        except Conflict as race:
            return race.code
        return None

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(start, range(6)))
    assert sorted(map(str, outcomes)) == ["None", *["idempotency_race"] * 5]
    winner = steps[outcomes.index(None)][0].run_id
    receipt = rows.store.receipts.find(a.PROJECT, "key")
    assert receipt == Receipt("key", "sha", {"run_id": winner})
    assert [run.run_id for run in rows.store.runs.list(a.PROJECT, {}, 10, None)] == [winner]


def test_receipts_are_kept_a_day_and_then_free_their_key(rows: Rows) -> None:
    receipt = Receipt("key", "sha", {"n": 1})
    rows.store.receipts.keep(a.PROJECT, receipt)
    rows.clock.advance(24 * 3600 - 1)
    assert rows.store.receipts.find(a.PROJECT, "key") == receipt
    with pytest.raises(Conflict):
        rows.store.receipts.keep(a.PROJECT, receipt)
    rows.clock.advance(1)
    assert rows.store.receipts.find(a.PROJECT, "key") is None
    rows.store.receipts.keep(a.PROJECT, replace(receipt, body_sha256="other"))
    found = rows.store.receipts.find(a.PROJECT, "key")
    assert found is not None
    assert found.body_sha256 == "other"


def test_runs_are_listed_newest_first_in_pages(rows: Rows) -> None:
    ids = []
    for _ in range(5):
        ids.append(rows.start().run_id)
        rows.clock.advance(1)
    first = rows.store.runs.list(a.PROJECT, {}, 3, None)
    second = rows.store.runs.list(a.PROJECT, {}, 3, first[-1].run_id)
    assert [run.run_id for run in (*first, *second)] == ids[::-1]
    with pytest.raises(NotFound):
        rows.store.runs.list(a.PROJECT, {}, 3, "run_none")


def test_pages_neither_repeat_nor_skip_runs_of_one_instant(rows: Rows) -> None:
    ids = {rows.start().run_id for _ in range(5)}
    first = rows.store.runs.list(a.PROJECT, {}, 3, None)
    second = rows.store.runs.list(a.PROJECT, {}, 3, first[-1].run_id)
    assert [len(first), len(second)] == [3, 2]
    assert {run.run_id for run in (*first, *second)} == ids


def test_runs_are_found_by_all_their_labels(rows: Rows) -> None:
    one = rows.start(labels=(("step", "17"), ("policy", "a")))
    rows.start(labels=(("step", "17"), ("policy", "b")))
    rows.start(labels=(("step", "18"), ("policy", "a")))
    found = rows.store.runs.list(a.PROJECT, {"step": "17", "policy": "a"}, 10, None)
    assert [run.run_id for run in found] == [one.run_id]
    assert rows.store.runs.list(a.PROJECT, {"none": "x"}, 10, None) == ()


def test_a_run_is_counted_as_its_rows_count(rows: Rows) -> None:
    replaced, _, cancelled = rows.started(6), rows.ready(rows.open()), rows.open()
    run_id = replaced.run.run_id
    rows.store.meters.accrue()
    _same_count(rows, run_id)
    rows.close(replaced, 3, None, a.failed())
    rows.close(cancelled, 4, EndReason.CANCELLED)
    _same_count(rows, run_id)
    rows.place()
    rows.close(rows.ready(rows.open()), 5)
    _same_count(rows, run_id)
    other = rows.start(20)
    rows.place()
    both = rows.store.runs.tallies((run_id, other.run_id))
    assert both[other.run_id].unplaced == 8
    _same_count(rows, other.run_id)
    rows.store.runs.ask_stop(other.run_id, EndReason.CANCELLED)
    _same_count(rows, other.run_id)


def _same_count(rows: Rows, run_id: str) -> None:
    counted = rows.store.runs.tallies((run_id,))
    read = rows.store.runs.forks(run_id), rows.store.runs.attempts(run_id)
    assert counted == {run_id: tally(*read)}


def test_the_internal_run_of_a_build_is_not_listed_nor_its_template(rows: Rows) -> None:
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    assert rows.store.runs.list(a.PROJECT, {}, 10, None) == ()
    assert rows.store.runs.forks(run.run_id) == ()


def test_a_project_sees_nothing_of_another(rows: Rows) -> None:
    rows.host()
    run = rows.start(**HELD)
    (fork,) = rows.store.runs.forks(run.run_id)
    rows.store.quotes.save(a.PROJECT, run.quote, "sha")
    rows.store.receipts.keep(a.PROJECT, Receipt("key", "sha", {}))
    build, internal, template = a.build()
    rows.store.builds.start(build, internal, template, None)
    rows.store.builds.accept(build.build_id, a.snapshot())
    assert rows.store.runs.list("other", {}, 10, None) == ()
    assert rows.store.snapshots.list("other") == ()
    assert rows.store.receipts.find("other", "key") is None
    for read in (
        lambda: rows.store.runs.get("other", run.run_id),
        lambda: rows.store.runs.fork("other", fork.fork_id),
        lambda: rows.store.runs.release("other", fork.fork_id, EndReason.RELEASED, None),
        lambda: rows.store.quotes.get("other", run.quote.quote_id),
        lambda: rows.store.builds.get("other", build.build_id),
        lambda: rows.store.snapshots.get("other", "task-suite@1"),
        lambda: rows.store.snapshots.delete("other", "task-suite"),
    ):
        with pytest.raises(NotFound):
            read()


def test_stopping_ends_what_waits_and_asks_what_runs(rows: Rows) -> None:
    running = rows.started(3, budget_micros=90_000)
    run_id = running.run.run_id
    asked = rows.store.runs.ask_stop(run_id, EndReason.CANCELLED)
    assert [attempt.attempt_id for attempt in asked] == [running.attempt.attempt_id]
    states = [(fork.state, fork.outcome) for fork in rows.store.runs.forks(run_id)]
    assert states == [
        (ForkState.RESTORING, None),
        (ForkState.ENDED, Outcome.CANCELLED),
        (ForkState.ENDED, Outcome.CANCELLED),
    ]
    assert rows.run(run_id).pool_micros == 60_000
    assert rows.store.hosts.list()[0].free_slots == 15
    rows.check_laws()
    assert rows.store.runs.ask_stop(run_id, EndReason.RUN_EXHAUSTED) == asked
    assert rows.fork(running.fork.fork_id).stop_asked is EndReason.CANCELLED


def test_stopping_a_run_that_only_waits_ends_it(rows: Rows) -> None:
    run = rows.start(2)
    assert rows.store.runs.ask_stop(run.run_id, EndReason.CANCELLED) == ()
    ended = rows.run(run.run_id)
    assert (ended.state, ended.ended_ns) == (RunState.ENDED, rows.clock.wall_ns())
    assert rows.store.runs.ask_stop(run.run_id, EndReason.CANCELLED) == ()


def test_a_release_is_a_wish_that_keeps_its_reward(rows: Rows) -> None:
    held = rows.ready(rows.started(**HELD))
    fork_id = held.fork.fork_id
    release = (a.PROJECT, fork_id, EndReason.RELEASED, 0.25)
    attempt = rows.store.runs.release(*release)
    assert attempt is not None
    assert attempt.attempt_id == held.attempt.attempt_id
    assert rows.store.runs.release(*release) == attempt
    with pytest.raises(Conflict) as caught:
        rows.store.runs.release(a.PROJECT, fork_id, EndReason.RELEASED, 0.5)
    assert caught.value.code == "already_released"
    rows.close(held, 5, EndReason.RELEASED, result=Result())
    assert rows.fork(fork_id).result.reward == 0.25
    assert rows.store.runs.release(*release) is None


def test_a_fork_without_a_machine_is_released_at_once(rows: Rows) -> None:
    run = rows.start(**HELD)
    (fork,) = rows.store.runs.forks(run.run_id)
    passed = EndReason.RELEASED_PASSED
    assert rows.store.runs.release(a.PROJECT, fork.fork_id, passed, None) is None
    assert rows.fork(fork.fork_id).outcome is Outcome.PASSED
    assert rows.run(run.run_id).state is RunState.ENDED


def test_only_a_held_fork_is_released(rows: Rows) -> None:
    claimed = rows.started()
    with pytest.raises(Conflict) as caught:
        rows.store.runs.release(a.PROJECT, claimed.fork.fork_id, EndReason.RELEASED, None)
    assert caught.value.code == "fork_not_held"


def test_a_release_after_another_end_says_which(rows: Rows) -> None:
    cancelled, lost = rows.started(2, **HELD), rows.open()
    rows.close(cancelled, 1, EndReason.CANCELLED)
    rows.close(lost, 1, EndReason.ENVIRONMENT_FAILED, a.failed())
    codes = {}
    for claimed in (cancelled, lost):
        with pytest.raises(Conflict) as caught:
            rows.store.runs.release(a.PROJECT, claimed.fork.fork_id, EndReason.RELEASED, None)
        codes[claimed.fork.fork_id] = (caught.value.code, caught.value.details)
    code, details = codes[cancelled.fork.fork_id]
    assert (code, details["outcome"], details["reason"]) == ("fork_ended", "cancelled", "cancelled")
    code, details = codes[lost.fork.fork_id]
    assert code == "environment_failure"
    assert details == {"fork_id": lost.fork.fork_id, "failure": a.failed().as_dict()}


def test_a_hold_that_runs_out_is_asked_to_stop_unless_it_is_already(rows: Rows) -> None:
    held = rows.ready(rows.started(3, **HELD))
    released = rows.ready(rows.open())
    rows.clock.advance(599)
    later = rows.ready(rows.open())
    assert rows.store.meters.expire_holds() == ()
    rows.store.runs.release(a.PROJECT, released.fork.fork_id, EndReason.RELEASED_FAILED, None)
    rows.clock.advance(1)
    assert rows.store.meters.expire_holds() == ((held.attempt.claim, held.attempt.attempt_id),)
    assert rows.store.meters.expire_holds() == ()
    asked = [rows.fork(each.fork.fork_id).stop_asked for each in (held, released, later)]
    assert asked == [EndReason.HOLD_EXPIRED, EndReason.RELEASED_FAILED, None]


def test_a_run_pins_its_snapshots_against_deletion(rows: Rows) -> None:
    build, internal, template = a.build()
    rows.store.builds.start(build, internal, template, None)
    rows.store.builds.accept(build.build_id, a.snapshot())
    run = rows.start()
    with pytest.raises(Conflict) as caught:
        rows.store.snapshots.delete(a.PROJECT, "task-suite")
    assert caught.value.details["runs"] == [run.run_id]
    rows.store.runs.ask_stop(run.run_id, EndReason.CANCELLED)
    (gone,) = rows.store.snapshots.delete(a.PROJECT, "task-suite")
    assert gone.ref == "task-suite@1"
    with pytest.raises(NotFound):
        rows.start()


def test_a_ledger_is_of_one_instant(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = rows.started()
    moves = bookings.moves

    def closed_just_then(at: Connection, run_id: str) -> tuple[Move, ...]:
        seen = moves(at, run_id)
        rows.close(claimed, at_s=5)
        return seen

    monkeypatch.setattr(bookings, "moves", closed_just_then)
    booked, lives = rows.store.runs.ledger(claimed.run.run_id)
    assert sum(move.charged_micros for move in booked) == 0
    assert [life.closed_ns for life in lives] == [None]
    monkeypatch.undo()
    booked, lives = rows.store.runs.ledger(claimed.run.run_id)
    charged = sum(move.charged_micros for move in booked)
    assert charged == 5 * a.MICROS_PER_SECOND == rows.run(claimed.run.run_id).charged_micros
    assert [life.closed_ns is None for life in lives] == [False]


def test_no_machine_lived_less_than_nothing_where_the_database_clock_was_set_back(
    rows: Rows,
) -> None:
    claimed = rows.started()
    rows.clock.advance(-5)
    closing = Closing(3, EndReason.ENVIRONMENT_FAILED, boot_id="the next boot")
    rows.close_as(claimed, closing)
    _, (life,) = rows.store.runs.ledger(claimed.run.run_id)
    assert life.lived_ns == 0
