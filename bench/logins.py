"""What a host's own login costs: machines opened, handed over and closed by it and by the tables' owner, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TypeVar

from app.domain.fork import EndReason
from app.domain.placement import choose
from app.domain.run import Claimed, Closing
from bench.figures import Claim, Figure, Result
from infra.access.postgres import PostgresLogins
from infra.store import Stores, create_store
from tests import builders as a
from tests.contract import postgres

FORKS = 2000
# Both work on one run, so that the ledger which a host's charge is held against grows for both alike.
BATCH = 25
STEPS = ("open", "ready", "close")
HOST = "host0"
CLOSING = Closing(3 * 10**9, EndReason.COMMAND_PASSED)

T = TypeVar("T")


@dataclass(slots=True)
class Times:
    """Of one login: the seconds of each step, in order."""

    store: Stores
    name: str
    taken: dict[str, list[float]] = field(default_factory=lambda: {step: [] for step in STEPS})

    def live(self, count: int) -> None:
        """So many machines, one after another, from their claim to their end."""
        for _ in range(count):
            claimed = self._timed("open", self._open)
            ready = self._timed("ready", partial(self._ready, claimed))
            self._timed("close", partial(self.store.attempts.close, ready, CLOSING))

    def _timed(self, step: str, act: Callable[[], T]) -> T:
        began = time.perf_counter()
        done = act()
        self.taken[step].append(time.perf_counter() - began)
        return done

    def _open(self) -> Claimed:
        opened = self.store.attempts.open(HOST, self.name, "boot", 0, None)
        assert opened is not None
        return opened

    def _ready(self, claimed: Claimed) -> Claimed:
        sample = claimed.attempt.attempt_id.ljust(32, "0")
        checking = self.store.attempts.checking(claimed, (), sample)
        return self.store.attempts.ready(checking, 10**9, ())


def measure() -> Result:
    """By turns of a few machines each, until a run of 2,000 forks has ended."""
    with _logins() as (owner, host):
        for number in range(FORKS // BATCH):
            (owner, host)[number % 2].live(BATCH)
        figures = {
            (times.name, step): Figure(f"{times.name}: {step}", tuple(times.taken[step]))
            for times in (owner, host)
            for step in STEPS
        }
    return Result(
        about={"forks": FORKS, "commits": "wait for the disk"},
        figures=tuple(figures.values()),
        claims=tuple(_claims(owner, host)),
    )


def _claims(owner: Times, host: Times) -> Iterator[Claim]:
    for step in STEPS:
        ratio = median(host.taken[step]) / median(owner.taken[step])
        yield Claim(f"{step}: a host's login by the owner's", ratio, at_most=2.0)
    last = FORKS // 10
    grown = median(host.taken["close"][-last:]) / median(owner.taken["close"][-last:])
    yield Claim("close, the run's last tenth: a host's login by the owner's", grown, at_most=2.0)


@contextmanager
def _logins() -> Iterator[tuple[Times, Times]]:
    """The owner's store and the host's, on one database with a run that is placed on that host."""
    with postgres.server(durable=True) as url:
        owner = create_store(url)
        owner.migrate()
        host = create_store(PostgresLogins(url).create(HOST))
        owner.hosts.register(a.fingerprint(HOST, memory_mib=1 << 22, disk_gib=1 << 20), FORKS)
        run, forks = a.step(FORKS)
        owner.runs.start(run, forks, None)
        owner.hosts.assign(choose(owner.hosts.waiting(FORKS), owner.hosts.list()))
        yield Times(owner, "owner"), Times(host, "host")
        host.close()
        owner.close()
