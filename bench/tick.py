"""What one tick of the billing worker costs while thousands of forks live: on PostgreSQL, and on SQLite beside it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text

from app.domain.ledger import SMALLEST_EXTENSION_NS
from app.domain.money import NS_PER_HOUR, cost_micros
from app.domain.placement import Placement
from app.flow import bill, recover
from app.ports import Ports
from bench.figures import Claim, Figure, Result, ratio
from infra.clock import HostClock
from infra.fakes.bells import FakeBells
from infra.fakes.machines import FakeImages
from infra.store import Stores, create_store
from tests import builders as a
from tests.contract import postgres
from tests.flow.stage import ports_of

COUNTS = (250, 500, 1000, 2000, 4000)
PROMISED, PROMISED_S = 2000, 0.25
FORKS_PER_RUN = 125
FORKS_PER_HOST = 250
ROUNDS = 15
RATE = a.RATE.micros_per_hour
# What a fork holds, and the most that it could use: so far apart that sharing never comes to its end.
GRANT = cost_micros(NS_PER_HOUR, RATE)
WORST = 24 * GRANT
# What early finishers must have left for each of the others, so that the pool is worth sharing out.
PART = cost_micros(2 * SMALLEST_EXTENSION_NS, RATE)

Act = Callable[[], object]


def measure() -> Result:
    """Ticks over more and more live forks: with nothing to share, and with every run's pool to be shared out."""
    with _postgres() as store, tempfile.TemporaryDirectory() as folder:
        steady, sharing = _figures(store, Path(folder), "PostgreSQL")
    with _sqlite() as store, tempfile.TemporaryDirectory() as folder:
        beside = _figures(store, Path(folder), "SQLite")
    return Result(
        about={"forks a run": FORKS_PER_RUN, "commits": "wait for the disk"},
        figures=(*steady.values(), *sharing.values(), *beside[0].values(), *beside[1].values()),
        claims=tuple(_claims(steady)) + tuple(_claims(sharing)),
    )


def _claims(figures: dict[int, Figure]) -> Iterator[Claim]:
    promised = figures[PROMISED]
    yield Claim(f"{promised.name}: seconds", promised.median, at_most=PROMISED_S)
    few, many = COUNTS[1], COUNTS[-1]
    per_fork = ratio("", figures[many], figures[few]).value * few / many
    name = promised.name.partition(",")[0]
    yield Claim(f"{name}: cost of a fork at {many} by that at {few}", per_fork, at_most=1.5)


def _figures(store: Stores, folder: Path, on: str) -> tuple[dict[int, Figure], dict[int, Figure]]:
    """By the number of live forks: steady ticks, and ticks that share every pool out."""
    ports = ports_of(store, FakeBells(), HostClock(), FakeImages("debian-12"), folder)
    steady, sharing = {}, {}
    for count in COUNTS:
        _populate(store, count)
        steady[count] = Figure(f"{on} steady, {count} forks", _ticks(ports, lambda: None))
        fill = _filler(store)
        sharing[count] = Figure(f"{on} sharing, {count} forks", _ticks(ports, fill))
        if ports.meters.sharable() or ports.meters.accrue() != count:
            raise RuntimeError(f"the ticks over {count} forks left something undone")
    return steady, sharing


def _ticks(ports: Ports, before: Act) -> tuple[float, ...]:
    """Seconds of each round but the first, which fills caches."""
    return tuple(_timed(ports, before) for _ in range(ROUNDS + 1))[1:]


def _timed(ports: Ports, before: Act) -> float:
    before()
    began = time.perf_counter()
    bill.tick(ports)
    recover.tick(ports)
    return time.perf_counter() - began


def _filler(store: Stores) -> Act:
    """What early finishers do to a pool, without their ends: a part for each of the others."""
    part = PART * FORKS_PER_RUN
    more = text(
        "UPDATE run SET budget_micros = budget_micros + :part, pool_micros = pool_micros + :part"
    )

    def fill() -> None:
        with store.database.write() as at:
            at.execute(more, {"part": part})

    return fill


def _populate(store: Stores, count: int) -> None:
    """Open machines, in runs of `FORKS_PER_RUN`, until `count` are open."""
    there = store.meters.accrue()
    for number in range(there // FORKS_PER_RUN, count // FORKS_PER_RUN):
        _start(store, f"host{number * FORKS_PER_RUN // FORKS_PER_HOST}")


def _start(store: Stores, host_id: str) -> None:
    room = FORKS_PER_HOST * a.SHAPE.memory_mib
    roomy = a.fingerprint(host_id, memory_mib=room, disk_gib=room)
    store.hosts.register(roomy, FORKS_PER_HOST)
    fields = {"worst_micros": WORST, "worst_attempt_ns": 24 * NS_PER_HOUR}
    run, forks = a.step(FORKS_PER_RUN, FORKS_PER_RUN * GRANT, fork_fields=fields)
    store.runs.start(run, forks, None)
    store.hosts.assign(
        tuple(Placement(each.fork_id, host_id, each.shape, "bench") for each in forks)
    )
    for _ in forks:
        opened = store.attempts.open(host_id, "bench", "boot", 0, None)
        assert opened is not None


@contextmanager
def _postgres() -> Iterator[Stores]:
    with postgres.server(durable=True) as url, _store(url) as store:
        yield store


@contextmanager
def _sqlite() -> Iterator[Stores]:
    with (
        tempfile.TemporaryDirectory(prefix="promigence-bench-") as folder,
        _store(f"sqlite:///{folder}/store.db") as store,
    ):
        yield store


@contextmanager
def _store(url: str) -> Iterator[Stores]:
    store = create_store(url)
    store.migrate()
    try:
        yield store
    finally:
        store.close()
