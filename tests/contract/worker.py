"""A host's worker among many on one database: it places, opens, hands over, ends and bills, and may be killed anywhere.

Time runs `PACE` times as fast as it does, for all processes alike: what nobody reports is closed by time within
seconds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import insert, select, update

from app.domain.fork import EndReason
from app.domain.placement import choose
from app.domain.run import Claimed, Closing, Exec, ExecPurpose, ExecResult
from app.errors import Conflict, StaleClaim, Unavailable
from app.flow import bill, recover
from app.ids import new_id
from app.ports import Ports
from infra.access.postgres import PostgresLogins
from infra.clock import HostClock
from infra.fakes.bells import FakeBells
from infra.fakes.machines import FakeImages
from infra.store import create_store
from infra.store.meters import Meters
from infra.store.money import next_sequence
from infra.store.rows import find_run
from infra.store.schema import LedgerKind
from infra.store.tables import forks, is_live, ledger, runs
from tests import builders as a
from tests.contract.as_hosts import as_hosts
from tests.flow.stage import ports_of

PACE = 30
SLOTS = 12
OPEN_AT_ONCE = 3
BILLS, HANDS_OVER, STARTS = 0.05, 0.3, 0.5
ENDS = (EndReason.COMMAND_PASSED,) * 5 + (
    EndReason.COMMAND_FAILED,
    EndReason.ENVIRONMENT_FAILED,
    None,
)
FAILED = (EndReason.ENVIRONMENT_FAILED, None)


@dataclass(frozen=True, slots=True)
class FastClock:
    """The database's clock, and every host's boot clock."""

    epoch_ns: int

    def now_ns(self) -> int:
        return self.epoch_ns + (time.time_ns() - self.epoch_ns) * PACE


class Trade:
    """What all workers of a crowd know. `careless`: they share by what they read before, as if nobody else wrote.

    `logins`: what each does as a host it does by that host's own login.
    """

    def __init__(self, url: str, epoch_ns: int, careless: bool, logins: bool) -> None:
        self._url, self._logins = url, logins
        self._clock = FastClock(epoch_ns)
        self._store = create_store(url, now_ns=self._clock.now_ns)
        nowhere, images = Path("unused"), FakeImages("debian-12")
        ports = ports_of(self._store, FakeBells(), HostClock(), images, nowhere)
        careful = self._store.meters
        meters = CarelessMeters(self._store.database) if careless else careful
        self._ports = replace(ports, meters=meters)

    def learn(self, host_id: str) -> None:
        """Work for a moment; what is held then is left to the next worker of that host."""
        with self._ports_at(host_id) as ports:
            worker = Worker(ports, host_id, random.Random(0), self._clock)
            worker.begin()
            for _ in range(3):
                worker.turn()

    def work(self, host_id: str, seed: int) -> None:
        """Work until no fork lives."""
        with self._ports_at(host_id) as ports:
            worker = Worker(ports, host_id, random.Random(seed), self._clock)
            worker.begin()
            while self._lives():
                worker.turn()

    @contextmanager
    def _ports_at(self, host_id: str) -> Iterator[Ports]:
        """No connection is left at the end: processes that are forked share none."""
        with ExitStack() as opened:
            opened.callback(self._store.close)
            if not self._logins:
                yield self._ports
                return
            url = PostgresLogins(self._url).create(host_id)
            own = create_store(url, now_ns=self._clock.now_ns)
            opened.callback(own.close)
            mixed = as_hosts(self._store, lambda _host_id: own)
            yield replace(
                self._ports, attempts=mixed.attempts, execs=mixed.execs, hosts=mixed.hosts
            )

    def _lives(self) -> bool:
        with self._store.database.read() as at:
            return at.execute(select(forks.c.fork_id).where(is_live).limit(1)).first() is not None


@dataclass(frozen=True, slots=True)
class Worker:
    """One process. `held` are the machines that it knows; another may hold them by now."""

    ports: Ports
    host_id: str
    chance: random.Random
    clock: FastClock
    claim: str = field(default_factory=lambda: new_id("claim"))
    held: list[Claimed] = field(default_factory=list)

    def begin(self) -> None:
        """Register, and take over what the process before this one held."""
        self.ports.hosts.register(a.fingerprint(self.host_id), SLOTS)
        for found in self.ports.attempts.held_by(self.host_id):
            adopted = self.ports.attempts.adopt(found.attempt.attempt_id, self.host_id, self.claim)
            if adopted is not None:
                self.held.append(adopted)

    def turn(self) -> None:
        """Everything once, in an order of chance."""
        acts = [self.place, self.open, self.end, self.end, self.end]
        if self.chance.random() < BILLS:
            acts.append(self.bill)
        self.chance.shuffle(acts)
        for act in acts:
            act()

    def place(self) -> None:
        self.ports.hosts.heartbeat(self.host_id, ())
        hosts = self.ports.hosts.list()
        self.ports.hosts.assign(choose(self.ports.hosts.waiting(2 * SLOTS), hosts))

    def open(self) -> None:
        for _ in range(OPEN_AT_ONCE):
            opened = self.ports.attempts.open(
                self.host_id, self.claim, "boot", self.clock.now_ns(), None
            )
            if opened is None:
                return
            self.held.append(opened)
            if self.chance.random() < HANDS_OVER:
                with suppress(StaleClaim):
                    self.held[-1] = self.hand_over(opened)

    def hand_over(self, claimed: Claimed) -> Claimed:
        sample = claimed.attempt.attempt_id.ljust(32, "0")
        checking = self.ports.attempts.checking(claimed, (), sample)
        ready = self.ports.attempts.ready(checking, self.clock.now_ns(), ())
        if self.chance.random() < STARTS:
            # Some are asked to stop meanwhile.
            with suppress(Conflict):
                self.start(ready)
        return ready

    def start(self, claimed: Claimed) -> None:
        """Its command, which may have ended when it is closed."""
        exec_id = f"task_{claimed.attempt.attempt_id}"
        names = (claimed.fork.fork_id, claimed.attempt.attempt_id, claimed.fork.project_id)
        asked = Exec(exec_id, *names, ExecPurpose.TASK, a.COMMAND)
        started = self.ports.execs.intend(claimed, asked)
        if started is not None and self.chance.random() < STARTS:
            self.ports.execs.finish(claimed, replace(started, result=ExecResult(exit_code=0)))

    def end(self) -> None:
        if not self.held:
            return
        claimed = self.held.pop(self.chance.randrange(len(self.held)))
        if self.chance.random() < 0.02:
            return  # forgotten: nobody reports it, until its lease is long over
        then = self.chance.choice(ENDS)
        failure = a.failed() if then in FAILED else None
        closing = Closing(self.clock.now_ns(), then, failure=failure)
        twice = self.chance.random() < 0.1
        for _ in range(1 + twice):
            with suppress(StaleClaim):
                self.ports.attempts.close(claimed, closing)

    def bill(self) -> None:
        try:
            bill.tick(self.ports)
        except ExceptionGroup as failed:
            # A run that others held for too long on this machine; anything else ends this worker, and the test.
            _, broken = failed.split(Unavailable)
            if broken is not None:
                raise broken from failed
        recover.tick(self.ports)


class CarelessMeters(Meters):
    """Shares as code does that keeps a row in its hands for a moment: get it, change it, write what it became."""

    def share(self, run_id: str) -> int:
        with self._database.read() as at:
            run = find_run(at, run_id)
            lacking = (
                forks.c.run_id == run_id,
                is_live,
                forks.c.worst_micros > forks.c.grant_micros,
            )
            fork = at.execute(select(forks).where(*lacking).limit(1)).first()
        if fork is None or run.pool_micros == 0:
            return 0
        moved = int(min(run.pool_micros, fork.worst_micros - fork.grant_micros))
        with self._database.write() as at:
            at.execute(
                update(runs)
                .where(runs.c.run_id == run_id)
                .values(
                    pool_micros=run.pool_micros - moved, granted_micros=run.granted_micros + moved
                )
            )
            at.execute(
                update(forks)
                .where(forks.c.fork_id == fork.fork_id)
                .values(grant_micros=fork.grant_micros + moved)
            )
            sequence = next_sequence(at, run_id, LedgerKind.SHARE)
            entry = {
                "subject_id": run_id,
                "kind": LedgerKind.SHARE,
                "sequence": sequence,
                "run_id": run_id,
                "pool_micros": -moved,
                "granted_micros": moved,
                "charged_micros": 0,
                "booked_ns": 0,
            }
            at.execute(insert(ledger).values(entry))
        return moved
