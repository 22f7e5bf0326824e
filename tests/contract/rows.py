"""A store under test, with the verbs that tests need and the laws that must hold after each of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from app.domain.account import month_of
from app.domain.failure import Failure
from app.domain.fork import EndReason, ForkState
from app.domain.money import NS_PER_SECOND
from app.domain.placement import Host, choose
from app.domain.run import Attempt, Claimed, Closed, Closing, Fork, Result, Run
from app.domain.sequel import Sequel
from infra.fakes.clock import ManualClock
from infra.store import Stores
from infra.store.schema import LedgerKind
from infra.store.tables import (
    attempts,
    forks,
    hosts,
    is_live,
    is_open,
    ledger,
    project_months,
    projects,
    runs,
    trials,
)
from tests import builders as a
from tests.contract.event_laws import check_events


@dataclass(frozen=True, slots=True)
class Ends:
    """What a closing brought about, with what followed for its run."""

    fork_state: ForkState
    lost_exec_ids: tuple[str, ...]
    sequel: Sequel

    @property
    def run_ended(self) -> bool:
        return self.sequel.run_ended

    @property
    def stopping(self) -> tuple[Attempt, ...]:
        return self.sequel.stopping


class Rows:
    """A store with a manual clock. Seconds are those of the host, whose clock began at 0."""

    def __init__(self, store: Stores, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock

    def host(self, host_id: str = a.HOST, slots: int = 16, **more: Any) -> None:
        self.store.hosts.register(a.fingerprint(host_id, **more), slots)

    def start(self, count: int = 1, budget_micros: int | None = None, **more: Any) -> Run:
        run, its_forks = a.step(count, budget_micros, **more)
        self.store.runs.start(run, its_forks, None)
        return run

    def place(self) -> int:
        return self.place_on(self.store.hosts.list())

    def place_on(self, seen: tuple[Host, ...]) -> int:
        """By what was seen of the hosts, be that old."""
        waiting = self.store.hosts.waiting(10_000)
        return len(self.store.hosts.assign(choose(waiting, seen)))

    def open(self, host_id: str = a.HOST, claim: str = "worker1", at_s: float = 0) -> Claimed:
        opened = self.try_open(host_id, claim, at_s)
        assert opened is not None
        return opened

    def try_open(
        self, host_id: str = a.HOST, claim: str = "worker1", at_s: float = 0
    ) -> Claimed | None:
        """What waits there and cannot start is settled first."""
        boot_ns = int(at_s * NS_PER_SECOND)
        self.settle()
        return self.store.attempts.open(host_id, claim, f"boot-of-{host_id}", boot_ns, None)

    def ready(self, claimed: Claimed, at_s: float = 2) -> Claimed:
        sample = claimed.attempt.attempt_id.ljust(32, "0")
        checking = self.store.attempts.checking(claimed, (), sample)
        return self.store.attempts.ready(checking, int(at_s * NS_PER_SECOND), ())

    def close(
        self,
        claimed: Claimed,
        at_s: float,
        then: EndReason | None = EndReason.COMMAND_PASSED,
        failure: Failure | None = None,
        result: Result | None = None,
        late_ns: int = 0,
    ) -> Ends:
        """By its host; then the control plane settles the run."""
        boot_ns = int(at_s * NS_PER_SECOND)
        closing = Closing(boot_ns, then, result or Result(), failure, late_ns=late_ns)
        return self.close_as(claimed, closing)

    def close_only(self, claimed: Claimed, at_s: float, *closing: Any) -> Closed:
        """Its host's part alone."""
        boot_ns = int(at_s * NS_PER_SECOND)
        then, failure = closing or (EndReason.COMMAND_PASSED, None)
        return self.store.attempts.close(claimed, Closing(boot_ns, then, failure=failure))

    def close_as(self, claimed: Claimed, closing: Closing, more: tuple[Fork, ...] = ()) -> Ends:
        return self.settled(self.store.attempts.close(claimed, closing, more), claimed)

    def close_by_time(self, attempt_id: str, message: str) -> Ends | None:
        seen = self.store.attempts.get(attempt_id)
        closed = self.store.attempts.close_by_time(attempt_id, message)
        if seen is None or closed is None:
            return None
        return self.settled(closed, seen)

    def settled(self, closed: Closed, claimed: Claimed) -> Ends:
        run_id = claimed.run.run_id
        sequel = self.store.meters.settle(run_id)
        return Ends(closed.fork_state, closed.lost_exec_ids, sequel or Sequel(run_id, False))

    def settle(self) -> None:
        """What the control plane does after each closing: nothing is left of it then."""
        for run_id in self.store.meters.unsettled():
            self.store.meters.settle(run_id)
        assert self.store.meters.unsettled() == ()

    def started(self, count: int = 1, budget_micros: int | None = None, **more: Any) -> Claimed:
        """The first fork of a new run, its machine open on `host0`."""
        self.host()
        self.start(count, budget_micros, **more)
        self.place()
        return self.open()

    def run(self, run_id: str) -> Run:
        return self.store.runs.get(a.PROJECT, run_id)

    def fork(self, fork_id: str) -> Fork:
        return self.store.runs.fork(a.PROJECT, fork_id)

    def expire_queued(self) -> tuple[Sequel, ...]:
        meters = self.store.meters
        found = (meters.expire_queued(run_id) for run_id in meters.overqueued())
        return tuple(each for each in found if each is not None)

    def check_laws(self) -> None:
        """What holds at every instant, whatever was done before."""
        with self.store.database.read() as at:
            _check_runs(at)
            _check_leases(at)
            _check_rooms(at)
            _check_projects(at)

    def check_events(self) -> None:
        """What the events of all runs say, against their rows: of many forks no small matter."""
        with self.store.database.read() as at:
            check_events(at)


def _check_runs(at: Connection) -> None:
    for run in at.execute(select(runs)):
        split = (run.pool_micros, run.granted_micros, run.charged_micros)
        assert min(split) >= 0
        assert sum(split) == run.budget_micros
        assert run.charged_micros <= run.quote.cap_micros
        assert run.granted_micros == _sum(at, forks.c.grant_micros, forks.c.run_id == run.run_id)
        of_run = attempts.c.run_id == run.run_id
        assert run.charged_micros == _sum(at, attempts.c.charged_micros, of_run)
        booked = [
            _sum(at, ledger.c[name], ledger.c.run_id == run.run_id)
            for name in ("pool_micros", "granted_micros", "charged_micros")
        ]
        assert tuple(booked) == split
        live = at.execute(select(func.count()).where(forks.c.run_id == run.run_id, is_live))
        # The other way round it is so once the run is settled.
        assert run.state != "ended" or live.scalar_one() == 0


def _check_leases(at: Connection) -> None:
    """No machine may cost more than its fork's grant, and no fork has two machines."""
    machines = at.execute(
        select(attempts, forks.c.grant_micros, forks.c.state, forks.c.attempt_id.label("present"))
        .join(forks, forks.c.fork_id == attempts.c.fork_id)
        .where(is_open)
    ).all()
    for machine in machines:
        whole = -(-machine.lease_ns * machine.micros_per_hour // (3600 * NS_PER_SECOND))
        assert whole <= machine.grant_micros
        assert machine.present == machine.attempt_id
        assert machine.state not in (ForkState.QUEUED, ForkState.ENDED)
    assert len({machine.fork_id for machine in machines}) == len(machines)
    charged = at.execute(select(ledger.c.subject_id).where(ledger.c.kind == LedgerKind.CHARGE))
    booked = list(charged.scalars())
    assert len(booked) == len(set(booked))


def _check_rooms(at: Connection) -> None:
    for host in at.execute(select(hosts)):
        on_it = (
            *at.execute(select(forks).where(forks.c.host_id == host.host_id, is_live)),
            *at.execute(select(trials).where(trials.c.host_id == host.host_id)),
        )
        assert host.free_slots == host.slots - len(on_it)
        assert host.free_memory_mib == host.memory_mib - sum(each.memory_mib for each in on_it)
        assert host.free_disk_gib == host.disk_gib - sum(each.disk_gib for each in on_it)


def _check_projects(at: Connection) -> None:
    """A month holds the budgets of its live runs and the charges of its ended ones; a limit, the placed forks."""
    held: Counter[tuple[str, str]] = Counter()
    for run in at.execute(select(runs)):
        of_month = (run.project_id, month_of(run.created_ns))
        held[of_month] += run.charged_micros if run.state == "ended" else run.budget_micros
    months = {(row.project_id, row.month): row for row in at.execute(select(project_months))}
    assert {of_month: row.committed_micros for of_month, row in months.items()} == {
        of_month: held[of_month] for of_month in months
    }
    assert held.keys() <= months.keys()
    for row in months.values():
        assert row.budget_micros is None or row.committed_micros <= row.budget_micros
    for project in at.execute(select(projects)):
        placed = (forks.c.project_id == project.project_id, forks.c.host_id.is_not(None), is_live)
        count = at.execute(select(func.count()).where(*placed)).scalar_one()
        assert project.live_forks == count
        assert project.max_forks is None or count <= project.max_forks


def _sum(at: Connection, column: Any, *conditions: Any) -> int:
    return int(
        at.execute(select(func.coalesce(func.sum(column), 0)).where(*conditions)).scalar_one()
    )
