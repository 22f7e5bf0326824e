"""The threads of a worker that mount: woken by a bell that finds nothing to claim, and never in a task's way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import structlog

from app.flow import place, start
from infra.fakes.machines import FakeBundles
from infra.queue import CeleryBells
from tests.flow.stage import PROJECT, Stage, definition, spec
from workers.gate import Gate
from workers.mounting import _mount, mounting, shed
from workers.tasks import Workbench, bring_up
from workers.watch import Ringer

LIMIT_S = 10


class Watched(FakeBundles):
    """Mounts that are waited for, and held up."""

    def __init__(self, root: Path, elsewhere: Path) -> None:
        super().__init__(root, elsewhere)
        self.begun = threading.Semaphore(0)
        self.let_go = threading.Event()
        self.ended = threading.Semaphore(0)

    def mount(self, bundle_id: str) -> None:
        self.begun.release()
        assert self.let_go.wait(LIMIT_S)
        super().mount(bundle_id)
        self.ended.release()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    """A worker of one host, whose bundles are stored elsewhere and not here; `task-suite` and `other` are stored."""
    stage = Stage(tmp_path, elsewhere=True)
    for name in ("task-suite", "other"):
        assert stage.build(definition(name=name))["state"] == "verified"
    stage.host.bundles.release()
    stage.ports.hosts.heartbeat("host0", ())
    watched = Watched(tmp_path / "bundles" / "host0", tmp_path / "elsewhere")
    host = replace(stage.host, bundles=watched)
    ringer = Ringer(stage.bells, host.claim)
    yield Workbench(stage.ports, host, cast(CeleryBells, stage.bells), ringer, Gate(1), Gate(1))
    ringer.close()
    stage.stores.close()


def watched(bench: Workbench) -> Watched:
    return cast(Watched, bench.host.bundles)


def start_of(bench: Workbench) -> str:
    """The bundle of a fork that was placed here just now."""
    start.start(bench.ports, PROJECT, spec("1s exit 0", count=1), None, None)
    place.place(bench.ports)
    return bench.ports.snapshots.get(PROJECT, "task-suite").bundle_id


def test_a_bell_that_finds_nothing_mounted_has_it_mounted_and_goes(bench: Workbench) -> None:
    bundle_id = start_of(bench)
    with mounting(bench):
        bring_up(bench)  # returns though nothing is mounted
        assert watched(bench).begun.acquire(timeout=LIMIT_S)
        assert bench.ports.attempts.held_by("host0") == ()
        watched(bench).let_go.set()
        assert watched(bench).ended.acquire(timeout=LIMIT_S)
    assert bench.host.bundles.mounted() == (bundle_id,)
    bring_up(bench)
    assert len(bench.ports.attempts.held_by("host0")) == 1


def test_nothing_is_mounted_by_a_worker_that_drains(bench: Workbench) -> None:
    start_of(bench)
    bench.draining.set()
    with mounting(bench):
        bench.mounts_wanted.set()
        while bench.mounts_wanted.is_set():  # it has looked when this is so no more
            threading.Event().wait(0.001)
    assert not watched(bench).begun.acquire(blocking=False)
    assert bench.host.mounts.coming() == frozenset()


def test_each_mount_has_a_thread_of_its_own(bench: Workbench) -> None:
    for name in ("task-suite", "other"):
        bench.ports.warm.set(PROJECT, name, 1)
    with mounting(bench):
        bench.mounts_wanted.set()
        for _ in range(2):
            assert watched(bench).begun.acquire(timeout=LIMIT_S)
        watched(bench).let_go.set()
        for _ in range(2):
            assert watched(bench).ended.acquire(timeout=LIMIT_S)
    assert len(bench.host.bundles.mounted()) == 2


def test_only_what_is_mounted_is_said_to_be(bench: Workbench) -> None:
    """One that found no turn has done nothing."""
    bundle_id = start_of(bench)
    watched(bench).let_go.set()
    for busy in ("a", "b"):
        assert bench.host.mounts.begin(busy, bench.ports.clock.boot_ns())
    with structlog.testing.capture_logs() as logs:
        _mount(bench, bundle_id)
        assert logs == []
        for busy in ("a", "b"):
            bench.host.mounts.end(busy)
        _mount(bench, bundle_id)
    assert [(each["event"], each["bundle_id"]) for each in logs] == [("bundle_mounted", bundle_id)]


def test_a_disk_that_is_not_full_costs_nothing(bench: Workbench) -> None:
    watched(bench).let_go.set()
    bundle_id = start_of(bench)
    watched(bench).mount(bundle_id)
    shed(bench)
    assert bench.host.bundles.mounted() == (bundle_id,)
