"""A deployment on fakes with a manual clock: real rows on SQLite, simulated machines, a queue that rings on demand."""

from __future__ import annotations

import hashlib
import io
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from app.domain.machine import RestoreKey, Shape
from app.domain.money import NS_PER_SECOND
from app.domain.rates import Price, RateCard
from app.domain.run import ExecSpec, Group, RunSpec
from app.domain.snapshot import Definition
from app.flow import (
    bill,
    build,
    collect,
    exec,  # noqa: A004 - the word of the contract
    fork,
    mount,
    place,
    recover,
    report,
    start,
    stop,
    template,
    verify,
)
from app.ports import Clock, HostPorts, Images, Ports
from app.ports.bundle import Limits
from infra.blobs import FolderBlobs
from infra.fakes.bells import Bell, FakeBells
from infra.fakes.clock import ManualClock
from infra.fakes.disk import FakeDisk
from infra.fakes.guest import FakeGuest
from infra.fakes.machines import RESTORE_KEY, FakeBundles, FakeImages, FakeMachines
from infra.fakes.world import World
from infra.store import Stores, create_store

PROJECT = "default"
SHAPE = Shape(1, 512, 4)
CARD = RateCard("test-1", (Price(SHAPE, 36_000, 72_000),))  # committed: 10 micro-dollars a second


class Hears:
    """Guest events of one host, turned into bells for the worker that is there now, if there is one."""

    def __init__(self, bells: FakeBells, claim: Callable[[], str | None]) -> None:
        self._bells, self._claim = bells, claim

    def ended(self, name: str, exec_id: str) -> None:
        self.lost(name)

    def lost(self, name: str) -> None:
        claim = self._claim()
        if claim is not None:
            self._bells.collect(claim, name)


@cache
def _migrated() -> bytes:
    """An empty database of this release: to make it anew for each test takes longer than most tests do."""
    store = create_store("sqlite://")
    store.migrate()
    try:
        return _driver(store).serialize()
    finally:
        store.close()


def _fill(store: Stores) -> None:
    _driver(store).deserialize(_migrated())


def _driver(store: Stores) -> sqlite3.Connection:
    """The one connection of a database in memory."""
    with closing(store.database.engine.raw_connection()) as lent:
        driver = lent.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


class Stage:
    """One control plane and some hosts. `ring` drains the queue; `run_for` lets time pass.

    `elsewhere`: what is stored is no host's own, and each mounts `mounts_max` bundles at most.
    """

    def __init__(
        self,
        tmp_path: Path,
        *,
        hosts: int = 1,
        slots: int = 100,
        elsewhere: bool = False,
        mounts_max: int = 16,
    ) -> None:
        self._elsewhere = tmp_path / "elsewhere" if elsewhere else None
        self._mounts_max = mounts_max
        self.clock = ManualClock()
        self.bells = FakeBells()
        self.stores = self.opened()
        self.ports = ports_of(
            self.stores, self.bells, self.clock, FakeImages("debian-12"), tmp_path
        )
        self.worlds: dict[str, World] = {}
        self.hosts: dict[str, HostPorts] = {}
        for number in range(hosts):
            self.add_host(f"host{number}", tmp_path, slots)

    def opened(self) -> Stores:
        """The rows, empty."""
        store = create_store("sqlite://", key_secret=b"k" * 32, now_ns=self.clock.wall_ns)
        _fill(store)
        return store

    def ports_at(self, _host_id: str) -> Ports:
        """What a host's worker has of them: here the same as everybody."""
        return self.ports

    def add_host(
        self,
        host_id: str,
        tmp_path: Path,
        slots: int,
        keys: tuple[RestoreKey, ...] = (RESTORE_KEY,),
    ) -> HostPorts:
        world = World(self.clock, Hears(self.bells, lambda: self._claim_at(host_id)))
        host = HostPorts(
            host_id=host_id,
            claim=f"{host_id}/1",
            machines=FakeMachines(world, host_id, keys=keys),
            guest=FakeGuest(world),
            bundles=self._bundles(host_id, tmp_path / "bundles"),
            forks_at_once=1000,
            mounts_max=self._mounts_max,
            disk=FakeDisk(),
            disk_reserve_bytes=2 << 30,
        )
        self.worlds[host_id], self.hosts[host_id] = world, host
        self.ports_at(host_id).hosts.register(host.machines.fingerprint(), slots)
        self.ports_at(host_id).hosts.heartbeat(host_id, ())
        return host

    def _bundles(self, host_id: str, folder: Path) -> FakeBundles:
        if self._elsewhere is None:
            return FakeBundles(folder)
        return FakeBundles(folder / host_id, self._elsewhere)

    @property
    def world(self) -> World:
        return self.worlds["host0"]

    @property
    def host(self) -> HostPorts:
        return next(iter(self.hosts.values()))

    def ring(self) -> int:
        """Ring every bell until none is left; how many rang."""
        rung = 0
        while self.bells.waiting:
            self.ring_one(self.bells.waiting.popleft())
            rung += 1
            assert rung < 100_000, "bells ring each other for ever"
        return rung

    def ring_one(self, bell: Bell) -> None:
        if bell.task == "place":
            place.place(self.ports)
            return
        host = self._rung(bell)
        if host is None:
            return
        if bell.task == "fork":
            if not fork.advance(self.ports_at(host.host_id), host):
                self.mount(host)
            return
        VERBS[bell.task](self.ports_at(host.host_id), host, bell.ids[1])

    def mount(self, host: HostPorts) -> None:
        """What the worker's threads do: mount what forks wait for here, and what is to be warm."""
        ports = self.ports_at(host.host_id)
        for bundle_id in mount.due(ports, host):
            mount.mount(ports, host, bundle_id)

    def _rung(self, bell: Bell) -> HostPorts | None:
        """Whose bell it is: any worker's of a host, or the one process's that holds a machine."""
        if bell.task not in OF_ONE_PROCESS:
            return self.hosts.get(bell.ids[0])
        return next((each for each in self.hosts.values() if each.claim == bell.ids[0]), None)

    def _claim_at(self, host_id: str) -> str | None:
        host = self.hosts.get(host_id)
        return host.claim if host is not None else None

    def run_for(self, seconds: float, step: float = 1.0, *, billing: bool = True) -> None:
        """Let time pass in steps: machines act, bells ring, the billing worker and the hosts tick."""
        for _ in range(int(seconds / step)):
            self.clock.advance(step)
            self.tick(billing=billing)

    def tick(self, *, billing: bool = True) -> None:
        for world in self.worlds.values():
            world.pump()
        self.ring()
        for host in self.hosts.values():
            recover.watch_host(self.ports_at(host.host_id), host)
            recover.sweep(self.ports_at(host.host_id), host)
        if billing:
            bill.tick(self.ports)
        recover.tick(self.ports)
        self.ring()

    def run_until_final(self, run_id: str, limit: int = 2000) -> dict[str, Any]:
        """Tick until the run has ended, with ever longer steps: what takes hours in a run takes few ticks here."""
        for number in range(limit):
            self.tick()
            page = self.report(run_id)
            if page["final"]:
                return page
            self.clock.advance(min(1 + number // 10, 10))
        raise AssertionError(f"{run_id} did not end: {self.report(run_id)}")

    def report(self, run_id: str) -> dict[str, Any]:
        return report.report(self.ports, PROJECT, run_id, forks=True)

    def build(self, definition: Definition) -> dict[str, Any]:
        """Build to its end; the build's page."""
        return self.followed(build.start(self.ports, PROJECT, definition, None))

    def rebuild(self, ref: str) -> dict[str, Any]:
        """Rebuild to its end; the build's page."""
        return self.followed(build.rebuild(self.ports, PROJECT, ref, None, None))

    def followed(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The page of a build that has been accepted, at its end."""
        for _ in range(1000):
            self.tick()
            page = report.build(self.ports, PROJECT, str(answer["build_id"]))
            if page["state"] in ("verified", "refused", "failed"):
                return page
            self.clock.advance(1)
        raise AssertionError(f"the build did not end: {page}")

    def start(self, spec: RunSpec) -> str:
        return str(start.start(self.ports, PROJECT, spec, None, None)["run_id"])

    def put(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        self.ports.blobs.put(io.BytesIO(content), expect=sha256, limit_bytes=1 << 20)
        self.ports.uploads.note(PROJECT, sha256)
        return sha256


def ports_of(stores: Stores, bells: FakeBells, clock: Clock, images: Images, folder: Path) -> Ports:
    """The control plane's ports: these rows, the test's rate card and limits."""
    return Ports(
        keys=stores.keys,
        projects=stores.projects,
        receipts=stores.receipts,
        audit=stores.audit,
        uploads=stores.uploads,
        snapshots=stores.snapshots,
        warm=stores.warm,
        quotes=stores.quotes,
        runs=stores.runs,
        attempts=stores.attempts,
        execs=stores.execs,
        builds=stores.builds,
        hosts=stores.hosts,
        meters=stores.meters,
        usage=stores.usage,
        workers=stores.workers,
        resources=stores.resources,
        deployments=stores.deployments,
        processes=stores.processes,
        bells=bells,
        blobs=FolderBlobs(folder / "blobs"),
        clock=clock,
        rates=CARD,
        images=images,
        limits=Limits(max_forks_per_run=2000, egress=("policy.internal:8000",)),
    )


OF_ONE_PROCESS = frozenset({"exec", "collect", "stop"})
VERBS: dict[str, Callable[[Ports, HostPorts, str], object]] = {
    "build": template.advance,
    "verify": verify.verify,
    "exec": exec.start,
    "collect": collect.collect,
    "stop": stop.stop,
}


def sim(text: str, timeout_s: float = 60, **more: Any) -> ExecSpec:
    """A command of a fake machine."""
    return ExecSpec(
        ("/bin/sh", "-c", f"sim: {text}"), timeout_ns=int(timeout_s * NS_PER_SECOND), **more
    )


def definition(**more: Any) -> Definition:
    given: dict[str, Any] = {
        "name": "task-suite",
        "image": "debian-12",
        "shape": SHAPE,
        "test": sim("1s exit 0"),
        **more,
    }
    return Definition(**given)


def spec(text: str = "1s exit 0", count: int = 2, cap_usd: float = 10.0, **more: Any) -> RunSpec:
    given: dict[str, Any] = {
        "groups": (Group("task-suite", count),),
        "cap_micros": int(cap_usd * 1_000_000),
        "exec": sim(text),
        "verify_each": False,
        **more,
    }
    return RunSpec(**given)
