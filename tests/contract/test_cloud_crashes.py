"""A host dies in every single call that stores or mounts a bundle, and never comes back: what it left in the account is
gone when its time is over, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from app.domain.cloud import Purpose, ResourceKind
from app.domain.rates import StoragePrice
from app.flow import cloud_leaks
from app.ports import Ports
from infra.fakes.account import Died, Trouble
from infra.fakes.bells import FakeBells
from infra.fakes.clock import ManualClock
from infra.fakes.machines import FakeImages
from infra.store import Stores, create_store
from tests import builders as a
from tests.contract.ebs_rig import Rig
from tests.flow.stage import ports_of
from workers.reaping import Reaper, uncounted

# Longer than anything may be unfinished, and than a host may be silent.
A_DAY_S = 24 * 3600
MOST_CALLS = 200


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(sqlite_template: Path, clock: ManualClock, folder: Path) -> Iterator[Stores]:
    file = folder / "store.db"
    file.write_bytes(sqlite_template.read_bytes())
    made = create_store(f"sqlite:///{file}", now_ns=clock.wall_ns)
    made.hosts.register(a.fingerprint("i-1"), 8)
    yield made
    made.close()


def dies_at(rig: Rig, n: int, act: Callable[[], object]) -> bool:
    """Whether the verb came as far as its `n`-th call, in which its host died with its instance."""
    rig.cloud.fail_at(n, Trouble.DIED)
    try:
        act()
    except Died:
        return True
    return False


def lose(rig: Rig, host: str) -> None:
    """The instance is terminated: nothing is mounted on it any more."""
    for point in [point for point in rig.zone.mounts if point.is_relative_to(rig.folder / host)]:
        del rig.zone.mounts[point]
        point.unlink()
    rig.cloud.terminate(host)


def reap(ports: Ports, store: Stores, rig: Rig, turns: int) -> list[int]:
    """What is owed after each look, a minute apart; host 1 is well."""
    owed: list[int] = []
    here = replace(
        ports,
        cloud=rig.cloud,
        rates=replace(ports.rates, storage=StoragePrice(80_000, 50_000)),
    )
    reaper = Reaper(
        partial(cloud_leaks.in_account, here, store.leaks),
        partial(cloud_leaks.mend_in_account, here, store.leaks),
        uncounted,
        owed.append,
    )
    for _ in range(turns):
        rig.clock.advance(60)
        store.hosts.heartbeat("i-1", ())
        reaper.turn()
    rig.settle()
    return owed


def building(store: Stores, bundle_id: str) -> None:
    """A build that is under way owns the bundle."""
    build, run, template = a.build()
    store.builds.start(replace(build, build_id=bundle_id), run, template, None)


def rigs(store: Stores, clock: ManualClock, folder: Path) -> Iterator[tuple[int, Rig, Ports]]:
    ports = ports_of(store, FakeBells(), clock, FakeImages(), folder)
    for n in range(1, MOST_CALLS):
        yield n, Rig(folder / str(n), clock, store.resources, n), ports
    raise AssertionError("this verb asks without end")


def test_a_host_that_died_while_it_stored_leaves_nothing(
    store: Stores, clock: ManualClock, folder: Path
) -> None:
    left = set()
    for n, rig, ports in rigs(store, clock, folder):
        rig.stage("i-2")
        bundles = rig.process("i-2")
        if not dies_at(rig, n, partial(bundles.store, rig.bundle_id)):
            break
        lose(rig, "i-2")
        rig.settle()
        left |= {row.purpose for row in rig.living()}
        reap(ports, store, rig, 2)
        before = rig.volumes() | rig.snapshots()
        assert {row.purpose for row in rig.living() if row.deadline_ns} or not before
        clock.advance(A_DAY_S)
        owed = reap(ports, store, rig, 2)
        assert rig.volumes() | rig.snapshots() == set(), n
        assert store.resources.living() == (), n
        assert owed[-1] == 0
    assert n > 10
    assert left == set(Purpose)


def test_a_host_that_died_while_it_mounted_leaves_what_others_have(
    store: Stores, clock: ManualClock, folder: Path
) -> None:
    for n, rig, ports in rigs(store, clock, folder):
        building(store, rig.bundle_id)
        rig.stored()
        kept = {row.token: row for row in rig.living()}
        there = rig.volumes() | rig.snapshots()
        bundles = rig.process("i-2")
        if not dies_at(rig, n, partial(bundles.mount, rig.bundle_id)):
            break
        lose(rig, "i-2")
        clock.advance(A_DAY_S)
        reap(ports, store, rig, 2)
        assert rig.volumes() | rig.snapshots() == there, n
        assert {row.token: row for row in rig.living()} == kept, n
        assert {row.kind for row in kept.values()} == set(ResourceKind)
        rig.check_warm("i-1")
        for token in kept:  # its account goes with the rig
            store.resources.gone(token)
    assert n > 6
