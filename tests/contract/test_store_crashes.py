"""A process may die at any statement: what it began is undone whole, and done whole when it is tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from app.domain.fork import EndReason
from app.domain.ledger import CLOSE_MARGIN_NS, START_WINDOW_NS
from app.domain.money import NS_PER_SECOND
from app.domain.run import Claimed, RunState, StopWhen
from tests import builders as a
from tests.contract.rows import Rows

LONG_S = 100 + (START_WINDOW_NS + CLOSE_MARGIN_NS) // NS_PER_SECOND + 1


class DiedError(Exception):
    """The process is gone."""


@pytest.fixture
def held(rows: Rows) -> tuple[Claimed, Claimed]:
    """Two machines of a run of three forks, each with a grant of 30 s and a command that runs."""
    rows.host(slots=2)
    rows.start(3, budget_micros=90 * a.MICROS_PER_SECOND, rerun_started=True)
    rows.place()
    return rows.ready(rows.open()), rows.ready(rows.open())


def test_a_start_is_whole_or_not_at_all(rows: Rows) -> None:
    run, forks = a.step(3, budget_micros=90_000, labels=(("step", "1"),))

    def found() -> object:
        return rows.store.runs.list(a.PROJECT, {}, 10, None), rows.store.hosts.waiting(10)

    _dies_anywhere(rows, lambda: rows.store.runs.start(run, forks, None), found)
    assert len(rows.store.runs.forks(run.run_id)) == 3


def test_an_end_is_whole_or_not_at_all(rows: Rows, held: tuple[Claimed, Claimed]) -> None:
    claimed = held[0]
    _dies_anywhere(rows, lambda: rows.close_only(claimed, 5), _all_of(rows, claimed))
    assert rows.run(claimed.run.run_id).charged_micros == 5 * a.MICROS_PER_SECOND


def test_a_replacement_is_whole_or_not_at_all(rows: Rows, held: tuple[Claimed, Claimed]) -> None:
    rows.close(held[1], 1)
    claimed = held[0]

    def fail() -> None:
        rows.close_only(claimed, 25, None, a.failed())  # 5 s are left, 10 s are needed

    _dies_anywhere(rows, fail, _all_of(rows, claimed))
    assert rows.fork(claimed.fork.fork_id).grant_micros == 10 * a.MICROS_PER_SECOND


def test_settling_is_whole_or_not_at_all(rows: Rows, held: tuple[Claimed, Claimed]) -> None:
    """The rule ends who waits, asks who runs to stop; then the run ends with who ran."""
    rows.host("host1")
    strict = rows.start(3, stop_when=StopWhen(0.1)).run_id
    rows.place()
    failed, running = rows.open("host1"), rows.open("host1")
    rows.close_only(failed, 5, EndReason.ENVIRONMENT_FAILED, a.failed())

    def settle() -> None:
        assert rows.store.meters.settle(strict) is not None

    _dies_anywhere(rows, settle, _all_of(rows, failed))
    assert rows.fork(running.fork.fork_id).stop_asked is EndReason.STOPPED_BY_RULE
    rows.close_only(running, 6, EndReason.STOPPED_BY_RULE, None)
    _dies_anywhere(rows, settle, _all_of(rows, running))
    assert rows.run(strict).state is RunState.ENDED


def test_sharing_is_whole_or_not_at_all(rows: Rows, held: tuple[Claimed, Claimed]) -> None:
    rows.close(held[1], 1)
    run_id = held[0].run.run_id
    _dies_anywhere(rows, lambda: rows.store.meters.share(run_id), _all_of(rows, held[0]))
    assert rows.run(run_id).pool_micros <= 1


def test_closing_by_time_is_whole_or_not_at_all(rows: Rows, held: tuple[Claimed, Claimed]) -> None:
    rows.clock.advance(LONG_S)
    claimed = held[0]
    attempt_id = claimed.attempt.attempt_id

    def close() -> None:
        assert rows.store.attempts.close_by_time(attempt_id, "silent") is not None

    _dies_anywhere(rows, close, _all_of(rows, claimed))
    assert rows.close_by_time(attempt_id, "silent") is None


def test_stopping_is_whole_or_not_at_all(rows: Rows, held: tuple[Claimed, Claimed]) -> None:
    run_id = held[0].run.run_id

    def stop() -> None:
        assert len(rows.store.runs.ask_stop(run_id, EndReason.CANCELLED)) == 2

    _dies_anywhere(rows, stop, _all_of(rows, held[0]))
    for claimed in held:
        rows.close(claimed, 5, EndReason.CANCELLED)
    assert rows.run(run_id).state is RunState.ENDED


def _all_of(rows: Rows, claimed: Claimed) -> Callable[[], object]:
    run_id = claimed.run.run_id
    return lambda: (
        rows.run(run_id),
        rows.store.runs.forks(run_id),
        rows.store.runs.attempts(run_id),
        rows.store.hosts.list(),
    )


def _dies_anywhere(rows: Rows, act: Callable[[], object], seen: Callable[[], object]) -> None:
    """Die before the first statement of `act`, before the second and so on, until one try gets through."""
    before = seen()
    for survived in range(100):
        with _dying_after(rows, survived) as died:
            try:
                act()
            except DiedError:
                died.append(True)
        rows.check_laws()
        if not died:
            assert survived > 3
            return
        assert seen() == before
    raise AssertionError("it never gets through")


@contextmanager
def _dying_after(rows: Rows, statements: int) -> Iterator[list[bool]]:
    left = [statements]

    def die(*_: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise DiedError

    engine = rows.store.database.engine
    event.listen(engine, "before_cursor_execute", die)
    try:
        yield []
    finally:
        event.remove(engine, "before_cursor_execute", die)
