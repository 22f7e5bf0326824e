"""What one tick of the billing worker costs while thousands of forks live: on PostgreSQL, and on SQLite beside it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text

from app.domain.ledger import SMALLEST_EXTENSION_NS
from app.domain.money import NS_PER_HOUR, cost_micros
from app.domain.placement import Placement
from app.flow import bill, recover
from app.ports import Ports
from bench.figures import Claim, Figure, Result
from infra.clock import HostClock
from infra.fakes.bells import FakeBells
from infra.fakes.machines import FakeImages
from infra.store import Stores, create_store
from tests import builders as a
from tests.contract import postgres
from tests.flow.stage import ports_of

COUNTS = (250, 500, 1000, 2000, 4000)
PROMISED, PROMISED_S = 2000, 0.25
FORKS_PER_RUN, FORKS_PER_SMALL_RUN = 125, 8
RUNS_PER_HOST = 2
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
    with _postgres() as ports:
        steady, sharing = _figures(ports, "PostgreSQL")
    with _postgres() as ports:
        small = _small_runs(ports)
    with _sqlite() as ports:
        beside = _figures(ports, "SQLite")
    return Result(
        about={"forks a run": FORKS_PER_RUN, "commits": "wait for the disk"},
        figures=(
            *steady.values(),
            *sharing.values(),
            small,
            *beside[0].values(),
            *beside[1].values(),
        ),
        claims=tuple(_claims(steady)) + tuple(_claims(sharing)),
    )


def _claims(figures: dict[int, Figure]) -> Iterator[Claim]:
    promised = figures[PROMISED]
    yield Claim(f"{promised.name}: seconds", promised.median, at_most=PROMISED_S)
    few, many = COUNTS[1], COUNTS[-1]
    # By the fastest of each: the two were not taken in turn, and what else the machine does fell on one of them.
    per_fork = min(figures[many].values) / min(figures[few].values) * few / many
    name = promised.name.partition(",")[0]
    yield Claim(f"{name}: cost of a fork at {many} by that at {few}", per_fork, at_most=1.5)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A store with the control plane's ports on it."""

    store: Stores
    ports: Ports


def _figures(at: Deployment, on: str) -> tuple[dict[int, Figure], dict[int, Figure]]:
    """By the number of live forks: steady ticks, and ticks that share every pool out."""
    steady, sharing = {}, {}
    for count in COUNTS:
        _populate(at.store, count, FORKS_PER_RUN)
        steady[count] = Figure(f"{on} steady, {count} forks", _ticks(at, lambda: None))
        fill = _filler(at.store, FORKS_PER_RUN)
        sharing[count] = Figure(f"{on} sharing, {count} forks", _ticks(at, fill))
        if at.ports.meters.sharable() or at.ports.meters.accrue() != count:
            raise RuntimeError(f"the ticks over {count} forks left something undone")
    return steady, sharing


def _small_runs(at: Deployment) -> Figure:
    """As after a while without a billing worker: a pool grows by ends alone, and here hundreds of runs had one."""
    _populate(at.store, PROMISED, FORKS_PER_SMALL_RUN)
    fill = _filler(at.store, FORKS_PER_SMALL_RUN)
    name = f"PostgreSQL sharing, {PROMISED} forks in runs of {FORKS_PER_SMALL_RUN}"
    return Figure(name, _ticks(at, fill))


def _ticks(at: Deployment, before: Act) -> tuple[float, ...]:
    """Seconds of each round but the first, which fills caches."""
    return tuple(_timed(at.ports, before) for _ in range(ROUNDS + 1))[1:]


def _timed(ports: Ports, before: Act) -> float:
    for host in ports.hosts.list():
        ports.hosts.heartbeat(host.host_id, ())  # no lease grows on a host that is silent
    before()
    began = time.perf_counter()
    bill.tick(ports)
    recover.tick(ports)
    return time.perf_counter() - began


def _filler(store: Stores, per_run: int) -> Act:
    """What early finishers do to a pool, without their ends: a part for each of the others."""
    more = text(
        "UPDATE run SET budget_micros = budget_micros + :part, pool_micros = pool_micros + :part"
    )

    def fill() -> None:
        with store.database.write() as at:
            at.execute(more, {"part": PART * per_run})

    return fill


def _populate(store: Stores, count: int, per_run: int) -> None:
    """Open machines, in runs of so many, until `count` are open."""
    there = store.meters.accrue()
    for number in range(there // per_run, count // per_run):
        _start(store, f"host{number // RUNS_PER_HOST}", per_run)


def _start(store: Stores, host_id: str, count: int) -> None:
    slots = RUNS_PER_HOST * count
    room = slots * a.SHAPE.memory_mib
    store.hosts.register(a.fingerprint(host_id, memory_mib=room, disk_gib=room), slots)
    fields = {"worst_micros": WORST, "worst_attempt_ns": 24 * NS_PER_HOUR}
    run, forks = a.step(count, count * GRANT, fork_fields=fields)
    store.runs.start(run, forks, None)
    store.hosts.assign(
        tuple(Placement(each.fork_id, host_id, each.shape, "bench") for each in forks)
    )
    for _ in forks:
        opened = store.attempts.open(host_id, "bench", "boot", 0, None)
        assert opened is not None


@contextmanager
def _postgres() -> Iterator[Deployment]:
    with postgres.server(durable=True) as url, _deployed(url) as deployment:
        yield deployment


@contextmanager
def _sqlite() -> Iterator[Deployment]:
    with (
        tempfile.TemporaryDirectory(prefix="promigence-bench-") as folder,
        _deployed(f"sqlite:///{folder}/store.db") as deployment,
    ):
        yield deployment


@contextmanager
def _deployed(url: str) -> Iterator[Deployment]:
    store = create_store(url)
    store.migrate()
    with tempfile.TemporaryDirectory(prefix="promigence-bench-") as folder:
        images = FakeImages("debian-12")
        ports = ports_of(store, FakeBells(), HostClock(), images, Path(folder))
        try:
            yield Deployment(store, ports)
        finally:
            store.close()
