"""The engine room: clocks, databases that are away, and transactions that do not mix."""

from __future__ import annotations

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text

from app.domain.placement import choose
from app.errors import Unavailable
from infra.store import Stores, create_store
from tests import builders as a
from tests.contract.rows import Rows


def test_the_databases_clock_is_the_time_of_day_and_goes_on(url: str) -> None:
    store = create_store(url)
    with store.database.write() as at:
        before_ns = time.time_ns()
        first, second = store.database.now_ns(at), store.database.now_ns(at)
        after_ns = time.time_ns()
    store.close()
    # One machine here, so the two clocks are one; PostgreSQL's has microseconds, SQLite's was read from two.
    assert before_ns - 1_000_000 <= first < second <= after_ns + 1_000_000


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_sqlites_clock_goes_on_when_the_wall_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    """Leases, claims and heartbeats end by it: they may not all end at once, and not an hour later either."""
    url = f"sqlite:///{tmp_path}/store.db"
    first = create_store(url, key_secret=b"k")
    first.migrate()
    first.hosts.register(a.fingerprint(), 4)
    run, forks = a.step(1, 1_000_000)
    first.runs.start(run, forks, None)
    first.hosts.assign(choose(first.hosts.waiting(10), first.hosts.list()))
    assert first.attempts.open(a.HOST, "claim", "boot", 0, None) is not None
    before_ns, wall_ns = _now_ns(first), time.time_ns

    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + step_s * 10**9)
    later = create_store(url)

    assert [host.alive for host in first.hosts.list()] == [True]
    assert first.attempts.overdue() == ()
    for store in (first, later):
        # Another process, which begins after the step, has the same time.
        assert 0 < _now_ns(store) - before_ns < 60 * 10**9
        store.close()


def _now_ns(store: Stores) -> int:
    with store.database.read() as at:
        return store.database.now_ns(at)


@pytest.mark.parametrize(
    "url", ["sqlite:////nowhere/store.db", "postgresql+psycopg://x@127.0.0.1:1/none"]
)
def test_a_database_that_is_away_says_so(url: str) -> None:
    store = create_store(url, key_secret=b"k")
    for call in (store.hosts.list, store.meters.accrue, store.migrate):
        with pytest.raises(Unavailable) as caught:
            call()
        assert (caught.value.code, caught.value.retryable) == ("database_away", True)
    store.close()


def test_another_kind_of_database_is_refused() -> None:
    with pytest.raises(ValueError, match="SQLite or PostgreSQL"):
        create_store("mysql://localhost/x")


def test_what_fails_leaves_nothing_behind(rows: Rows) -> None:
    rows.host()

    def fail_halfway() -> None:
        with rows.store.database.write() as at:
            at.execute(text("UPDATE host SET free_slots = 0"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert rows.store.hosts.list()[0].free_slots == 16


def test_readers_do_not_wait_for_a_writer(rows: Rows) -> None:
    rows.host()
    with rows.store.database.write() as at:
        at.execute(text("UPDATE host SET free_slots = 0"))
        with ThreadPoolExecutor(1) as pool:
            seen = pool.submit(rows.store.hosts.list).result(timeout=20)
        at.rollback()
    assert seen[0].free_slots == 16


def test_a_reader_sees_one_state_of_all_rows(rows: Rows) -> None:
    rows.host()
    names = text("SELECT count(*) FROM host")
    with rows.store.database.read() as at:
        assert at.execute(names).scalar_one() == 1
        with ThreadPoolExecutor(1) as pool:
            pool.submit(rows.host, "host1").result(timeout=20)
        assert at.execute(names).scalar_one() == 1
    assert len(rows.store.hosts.list()) == 2


def test_a_row_that_another_holds_is_waited_for_no_longer_than_asked(postgres_url: str) -> None:
    """Of PostgreSQL alone: on SQLite no row is held, there are turns to write."""
    store = create_store(postgres_url)
    hosts = text("LOCK TABLE host IN EXCLUSIVE MODE")

    def hold() -> None:
        with store.database.write(lock_wait_ms=10) as at:
            at.execute(hosts)

    with store.database.write() as at:
        at.execute(hosts)
        with ThreadPoolExecutor(1) as pool, pytest.raises(Unavailable) as caught:
            pool.submit(hold).result(timeout=20)
    store.close()
    assert (caught.value.code, caught.value.retryable) == ("database_busy", True)


def test_a_writer_reads_what_it_will_write_over(rows: Rows) -> None:
    """Of two that read and then write, the second reads what the first wrote."""
    rows.host()
    run = rows.start(8, budget_micros=120_000)
    rows.place()
    held = [rows.open() for _ in range(8)]
    start = threading.Barrier(8)

    def close(number: int) -> None:
        start.wait(timeout=20)
        rows.close(held[number], at_s=5)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(close, range(8)))
    ended = rows.run(run.run_id)
    assert (ended.charged_micros, ended.pool_micros) == (40_000, 80_000)


def test_a_writer_that_never_gets_a_turn_says_so(
    tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.store.engine.SQLITE_WAIT_S", 0.05)
    path = shutil.copy(sqlite_template, tmp_path / "store.db")
    store, other = create_store(f"sqlite:///{path}"), create_store(f"sqlite:///{path}")
    with other.database.write(), pytest.raises(Unavailable):
        store.hosts.register(a.fingerprint(), 16)
    store.hosts.register(a.fingerprint(), 16)
    with store.database.write(), ThreadPoolExecutor(1) as pool:
        late = pool.submit(store.hosts.heartbeat, a.HOST, ())
        assert isinstance(late.exception(timeout=20), Unavailable)
    store.close()
    other.close()


def test_a_store_in_memory_is_one_database_for_all_threads() -> None:
    store = create_store("sqlite:///:memory:")
    store.migrate()
    store.hosts.register(a.fingerprint(), 16)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: store.hosts.heartbeat(a.HOST, ()), range(40)))
        assert len(store.hosts.list()) == 1
    store.close()


def test_sqlite_keeps_what_it_has_committed(tmp_path: Path) -> None:
    store = create_store(f"sqlite:///{tmp_path}/store.db")
    with store.database.read() as at:
        pragmas = {
            name: at.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    store.close()
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,  # FULL
        "foreign_keys": 1,
        "busy_timeout": 20_000,
    }
