"""A tick of the billing worker: exact, in nobody's way, harmless beside another, and whole again after any death."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select, update

from app.domain.fork import EndReason
from app.domain.ledger import CLOSE_MARGIN_NS, START_WINDOW_NS
from app.domain.money import NS_PER_HOUR, NS_PER_SECOND, cost_micros
from app.domain.rates import Basis, Rate
from app.errors import PromigenceError, Unavailable
from app.flow import bill, recover
from app.ports import Ports
from infra.fakes.bells import FakeBells
from infra.fakes.clock import ManualClock
from infra.fakes.machines import FakeImages
from infra.store import create_store
from infra.store.accrual import Accrued, note
from infra.store.meters import Meters
from infra.store.tables import METADATA, attempts, deployments, forks, hosts, ledger, runs
from tests import builders as a
from tests.contract.conftest import SECRET, truncate
from tests.contract.rows import Rows
from tests.flow.stage import ports_of

SECOND = a.MICROS_PER_SECOND
DEAR = Rate(1_000_000_000, Basis.COMMITTED, "test-1")  # 1,000 USD an hour
MONTH_NS = 30 * 24 * NS_PER_HOUR
PARTS = ("verification_micros", "tasks_micros", "environment_micros")
LONG_S = 20 + (START_WINDOW_NS + CLOSE_MARGIN_NS) // NS_PER_SECOND + 1


@pytest.fixture
def postgres_rows(postgres_url: str) -> Iterator[Rows]:
    """Rows on PostgreSQL, for what SQLite has no like of."""
    truncate(postgres_url)
    clock = ManualClock()
    store = create_store(postgres_url, key_secret=SECRET, now_ns=clock.wall_ns)
    yield Rows(store, clock)
    store.close()


def test_what_is_shown_is_exact_where_time_by_rate_has_more_than_64_bits(rows: Rows) -> None:
    rows.host()
    whole = cost_micros(MONTH_NS, DEAR.micros_per_hour)
    fields = {"worst_micros": whole, "worst_attempt_ns": MONTH_NS}
    run, its_forks = a.step(1, fork_fields=fields)
    run = replace(run, quote=replace(run.quote, rate=DEAR))
    rows.store.runs.start(run, its_forks, None)
    rows.place()
    rows.open()
    rows.clock.advance(MONTH_NS // NS_PER_SECOND - 1)
    rows.store.meters.accrue()
    (line,) = rows.store.runs.attempts(run.run_id)
    assert line.total_micros == cost_micros(MONTH_NS - NS_PER_SECOND, DEAR.micros_per_hour)


def test_a_figure_that_did_not_change_is_not_written_again(rows: Rows) -> None:
    rows.started(2)
    rows.open()
    rows.clock.advance(5)
    assert _writes(rows, rows.store.meters.accrue) == 1
    assert _writes(rows, rows.store.meters.accrue) == 0
    rows.clock.advance(1)
    assert _writes(rows, rows.store.meters.accrue) == 1


def test_an_older_figure_never_replaces_a_newer_one(rows: Rows) -> None:
    """Of two that accrue at once, the one that read earlier may write later."""
    claimed = rows.started()
    rows.clock.advance(5)
    rows.store.meters.accrue()
    with rows.store.database.write() as at:
        note(at, [Accrued(claimed.attempt.attempt_id, 4 * SECOND, 0)])
    (line,) = rows.store.runs.attempts(claimed.run.run_id)
    assert line.total_micros == 5 * SECOND


def test_a_figure_that_comes_after_the_end_is_dropped(rows: Rows) -> None:
    claimed = rows.started()
    rows.close(claimed, at_s=3)
    with rows.store.database.write() as at:
        note(at, [Accrued(claimed.attempt.attempt_id, 5 * SECOND, 0)])
    (line,) = rows.store.runs.attempts(claimed.run.run_id)
    assert line.total_micros == 3 * SECOND


def test_accruing_neither_waits_for_a_machine_that_ends_nor_holds_its_end_up(
    postgres_rows: Rows,
) -> None:
    """Of PostgreSQL alone: on SQLite one transaction writes at a time."""
    rows = postgres_rows
    rows.started(2)
    rows.open()
    rows.clock.advance(5)
    first, second = rows.store.attempts.held_by(a.HOST)
    with rows.store.database.write() as at:
        one = attempts.c.attempt_id == first.attempt.attempt_id
        at.execute(update(attempts).where(one).values(late_ns=0))
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(rows.store.meters.accrue).result(timeout=20) == 2
    noted = {
        line.attempt.attempt_id: line.total_micros
        for line in rows.store.runs.attempts(first.run.run_id)
    }
    assert noted == {first.attempt.attempt_id: 0, second.attempt.attempt_id: 5 * SECOND}


def test_a_run_that_another_holds_keeps_no_other_from_its_part(
    postgres_rows: Rows, tmp_path: Path
) -> None:
    """As by a worker that was stopped in the middle of a transaction. Of PostgreSQL alone, too."""
    rows = postgres_rows
    held, free = (_run_with_something_to_share(rows) for _ in range(2))
    with rows.store.database.write() as at:
        at.execute(select(runs).where(runs.c.run_id == held).with_for_update())
        with ThreadPoolExecutor(1) as pool, pytest.raises(ExceptionGroup) as failed:
            pool.submit(bill.tick, _ports(rows, tmp_path)).result(timeout=20)
    (busy,) = failed.value.exceptions
    assert isinstance(busy, Unavailable)
    assert busy.code == "database_busy"
    assert rows.run(held).pool_micros == 10 * SECOND
    assert rows.run(free).pool_micros == 0
    bill.tick(_ports(rows, tmp_path))
    assert rows.run(held).pool_micros == 0


def test_a_part_that_fails_keeps_no_other_from_its_own(rows: Rows, tmp_path: Path) -> None:
    broken, sound = (_run_with_something_to_share(rows) for _ in range(2))
    held = _hold_that_is_over(rows)

    class Breaking(Meters):
        def share(self, run_id: str) -> int:
            if run_id == broken:
                raise PromigenceError("constraint_refused", "ck_run_budget_adds_up")
            return super().share(run_id)

    ports = _ports(rows, tmp_path)
    with pytest.raises(ExceptionGroup) as failed:
        bill.tick(replace(ports, meters=Breaking(rows.store.database)))
    assert [str(error) for error in failed.value.exceptions] == ["ck_run_budget_adds_up"]
    assert rows.run(sound).pool_micros == 0
    assert rows.fork(held).stop_asked is EndReason.HOLD_EXPIRED


def test_two_ticks_at_once_do_what_one_does(rows: Rows, tmp_path: Path) -> None:
    _scene(rows)
    _settle(rows, tmp_path)
    undisturbed = _figures(rows)
    _empty(rows)
    _scene(rows)
    ports, start = _ports(rows, tmp_path), threading.Barrier(4)

    def tick() -> None:
        start.wait(timeout=20)
        bill.tick(ports)
        recover.tick(ports)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(tick) for _ in range(4)]:
            done.result(timeout=60)
    rows.check_laws()
    _settle(rows, tmp_path)
    assert _figures(rows) == undisturbed


def test_a_worker_that_is_killed_at_any_statement_loses_nothing(rows: Rows, tmp_path: Path) -> None:
    """Before each statement of a tick and before each commit; the next one comes to the same figures."""
    _scene(rows)
    _settle(rows, tmp_path)
    undisturbed = _figures(rows)
    survived = -1
    killed = True
    while killed:
        survived += 1
        _empty(rows)
        _scene(rows)
        killed = _killed_in_a_tick(rows, tmp_path, survived)
        rows.check_laws()
        _settle(rows, tmp_path)
        assert _figures(rows) == undisturbed, f"killed before step {survived}"
    assert survived > 30


def _killed_in_a_tick(rows: Rows, folder: Path, survived: int) -> bool:
    """Whether a process of its own was killed before that many steps of a tick were over."""
    rows.store.close()  # a connection is of one process
    process = os.fork()
    if process == 0:
        status = 1
        try:
            _die_after(rows, survived)
            ports = _ports(rows, folder)
            bill.tick(ports)
            recover.tick(ports)
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(process, 0)
    assert os.WIFSIGNALED(ended) or os.WEXITSTATUS(ended) == 0
    return os.WIFSIGNALED(ended)


def _die_after(rows: Rows, steps: int) -> None:
    left = [steps]

    def step(*_: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(rows.store.database.engine, "before_cursor_execute", step)
    event.listen(rows.store.database.engine, "commit", step)


def _scene(rows: Rows) -> None:
    """One of everything that a tick sees to: a meter, a pool, a hold, a wait and a lost machine."""
    rows.started(budget_micros=20 * SECOND, fork_fields={"worst_attempt_ns": 20 * NS_PER_SECOND})
    rows.clock.advance(LONG_S)
    _hold_that_is_over(rows)
    _run_with_something_to_share(rows)
    rows.start(2, queue_timeout_ns=5 * NS_PER_SECOND)
    rows.clock.advance(6)


def _run_with_something_to_share(rows: Rows) -> str:
    """A run of three with 15 s each, of which one ended after 5 s."""
    rows.host()
    run = rows.start(3, budget_micros=45 * SECOND)
    rows.place()
    first, _, _ = rows.open(), rows.open(), rows.open()
    rows.close(first, at_s=5)
    return run.run_id


def _hold_that_is_over(rows: Rows) -> str:
    """A fork in its caller's hands for longer than was agreed."""
    rows.host()
    rows.start(1, hold_ns=10 * NS_PER_SECOND)
    rows.place()
    held = rows.ready(rows.open())
    rows.clock.advance(10)
    return held.fork.fork_id


def _settle(rows: Rows, folder: Path) -> None:
    """Tick until there is nothing more to do: what one frees, the next shares out."""
    for _ in range(3):
        bill.tick(_ports(rows, folder))
        recover.tick(_ports(rows, folder))


def _figures(rows: Rows) -> list[list[tuple[Any, ...]]]:
    """All that ticks move, without the ids, which are new in every scene."""
    tables = (
        (runs, ("state", "pool_micros", "granted_micros", "charged_micros")),
        (forks, ("state", "outcome", "reason", "stop_asked", "grant_micros", "worst_micros")),
        (attempts, ("lease_ns", "closed_boot_ns", "charged_micros", *PARTS)),
        (ledger, ("kind", "sequence", "pool_micros", "granted_micros", "charged_micros")),
        (hosts, ("free_slots", "free_memory_mib", "free_disk_gib")),
    )
    with rows.store.database.read() as at:
        return [
            sorted(
                (tuple(row) for row in at.execute(select(*(table.c[name] for name in names)))),
                key=repr,
            )
            for table, names in tables
        ]


def _empty(rows: Rows) -> None:
    with rows.store.database.write() as at:
        for table in reversed(METADATA.sorted_tables):
            if table is not deployments:
                at.execute(table.delete())


def _writes(rows: Rows, act: Callable[[], object]) -> int:
    """How many statements wrote, of all that `act` made."""
    written: list[str] = []

    def seen(_c: Any, _x: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE"):
            written.append(statement)

    event.listen(rows.store.database.engine, "before_cursor_execute", seen)
    act()
    event.remove(rows.store.database.engine, "before_cursor_execute", seen)
    return len(written)


def _ports(rows: Rows, folder: Path) -> Ports:
    return ports_of(rows.store, FakeBells(), rows.clock, FakeImages("debian-12"), folder)
