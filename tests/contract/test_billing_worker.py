"""The billing worker on a database that goes away and comes back: it goes on by itself, and its stamp is true."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest
from sqlalchemy import make_url

from app.errors import PromigenceError
from app.ports import Ports
from drills.forwarder import Forwarder, Outage
from infra.fakes.bells import FakeBells
from infra.fakes.clock import ManualClock
from infra.fakes.machines import FakeImages
from infra.store import Stores, create_store
from infra.store.meters import Meters
from tests import builders as a
from tests.contract.conftest import SECRET, truncate
from tests.contract.rows import Rows
from tests.flow.stage import ports_of
from workers import billing
from workers.pace import stamped

SECOND = a.MICROS_PER_SECOND
BACK_WITHIN_S = 10.0
AWAY_S = 2.5


@pytest.fixture
def direct(postgres_url: str) -> Iterator[Rows]:
    """Rows on PostgreSQL, past the forwarder."""
    truncate(postgres_url)
    clock = ManualClock()
    store = create_store(postgres_url, key_secret=SECRET, now_ns=clock.wall_ns)
    yield Rows(store, clock)
    store.close()


@pytest.fixture
def forwarder(postgres_url: str) -> Iterator[Forwarder]:
    """What the worker reaches the database by."""
    url = make_url(postgres_url)
    made = Forwarder(Path(str(url.query["host"])) / ".s.PGSQL.5432")
    yield made
    made.mend()
    made.close()


@pytest.mark.parametrize("outage", Outage)
def test_it_goes_on_when_the_database_is_back(
    direct: Rows, forwarder: Forwarder, tmp_path: Path, outage: Outage
) -> None:
    direct.host()
    run = direct.start(2, budget_micros=30 * SECOND)
    direct.place()
    first, _ = direct.open(), direct.open()
    url = f"postgresql://postgres@127.0.0.1:{forwarder.port}/postgres"
    store = create_store(url, now_ns=direct.clock.wall_ns)
    tick_file, stop = tmp_path / "tick", Event()
    with _working(_ports(direct, store, tmp_path), tick_file, stop):
        before = stamped(tick_file)
        forwarder.cut(outage)
        # A machine ends meanwhile, by a host that can reach the database: no lock is left behind.
        direct.close(first, at_s=5)
        direct.clock.advance(1)
        assert not stop.wait(AWAY_S)
        assert stamped(tick_file) == before
        assert direct.run(run.run_id).pool_micros == 10 * SECOND
        forwarder.mend()
        _until(lambda: stamped(tick_file) != before)
        assert direct.run(run.run_id).pool_micros == 0
    store.close()
    assert not tick_file.exists()
    direct.check_laws()


def test_a_run_that_fails_does_not_make_it_look_dead(rows: Rows, tmp_path: Path) -> None:
    rows.host()
    broken, sound = (rows.start(2, budget_micros=30 * SECOND) for _ in range(2))
    rows.place()
    for claimed in [rows.open() for _ in range(4)]:
        if claimed.fork.index == 0:
            rows.close(claimed, at_s=5)

    class Breaking(Meters):
        def share(self, run_id: str) -> int:
            if run_id == broken.run_id:
                raise PromigenceError("constraint_refused", "ck_run_budget_adds_up")
            return super().share(run_id)

    meters = Breaking(rows.store.database)
    ports = replace(_ports(rows, rows.store, tmp_path), meters=meters)
    with _working(ports, tmp_path / "tick", Event()):
        assert rows.run(sound.run_id).pool_micros == 0
        assert rows.run(broken.run_id).pool_micros == 10 * SECOND


class Nowhere:
    """No queue, so no queue of a worker that is gone."""

    def sweep(self, living: Callable[[], frozenset[str]]) -> int:
        return 0


@contextmanager
def _working(ports: Ports, tick_file: Path, stop: Event) -> Iterator[None]:
    """A billing worker that has just ticked; it ends with the block."""
    worker = Thread(target=billing.run, args=(ports, Nowhere(), tick_file, stop))
    worker.start()
    try:
        _until(lambda: stamped(tick_file) is not None)
        yield
    finally:
        stop.set()
        worker.join(timeout=60)
    assert not worker.is_alive()


def _ports(rows: Rows, store: Stores, folder: Path) -> Ports:
    return ports_of(store, FakeBells(), rows.clock, FakeImages("debian-12"), folder)


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + BACK_WITHIN_S
    while not holds():
        assert time.monotonic() < until
        Event().wait(0.02)
