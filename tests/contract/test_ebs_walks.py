"""Every single call of the cloud and of the rows fails once, in each way, in each verb: nothing is left behind that has
no row, no row without its thing, and the same verb again does what it was to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.errors import CloudRefused, EnvironmentFault, Unavailable
from app.ports.cloud import Resources
from infra.ebs import EbsBundles
from infra.ebs.bundles import SPARE_S
from infra.fakes.account import Died, Trouble
from infra.fakes.clock import ManualClock
from infra.store import create_store
from tests.contract.ebs_rig import Rig

FAILURES = (EnvironmentFault, CloudRefused, Unavailable, Died)
# Longer than anybody waits: the cloud is away from one call on.
FOR_LONG = 1000


@dataclass(frozen=True, slots=True)
class Walk:
    """A verb: what comes before it, what it does, and what there is when it is done.

    `tells`: it raises what the cloud refuses. The others go on, and `tidy` comes by again.
    """

    before: Callable[[Rig], object]
    act: Callable[[Rig], object]
    done: Callable[[Rig], object]
    tells: bool = True


def stored_twice(rig: Rig) -> None:
    rig.stored()
    rig.process("i-2").mount(rig.bundle_id)


def rebooted(rig: Rig) -> None:
    stored_twice(rig)
    rig.reboot("i-2")


def evict(rig: Rig) -> None:
    host = rig.process("i-2")
    assert host.evict(rig.bundle_id)
    tidy(rig, host)


def release(rig: Rig) -> None:
    host = rig.process("i-2")
    host.release()
    tidy(rig, host)


def tidy(rig: Rig, host: EbsBundles) -> None:
    """As often as it has to come by for what another process left."""
    host.tidy()
    rig.clock.advance(SPARE_S)
    host.tidy()


WALKS = {
    "store": Walk(
        Rig.stage, lambda rig: rig.process().store(rig.bundle_id), lambda rig: rig.check_warm("i-1")
    ),
    "mount": Walk(
        Rig.stored,
        lambda rig: rig.process("i-2").mount(rig.bundle_id),
        lambda rig: rig.check_warm("i-1", "i-2"),
    ),
    "mount after a reboot": Walk(
        rebooted,
        lambda rig: rig.process("i-2").mount(rig.bundle_id),
        lambda rig: rig.check_warm("i-1", "i-2"),
    ),
    "evict": Walk(stored_twice, evict, lambda rig: rig.check_warm("i-1"), tells=False),
    "release": Walk(stored_twice, release, lambda rig: rig.check_warm("i-1"), tells=False),
    "delete": Walk(
        Rig.stored, lambda rig: rig.process().delete(rig.bundle_id), Rig.check_nothing_left
    ),
}


@pytest.fixture(autouse=True)
def no_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of bundles are read here, and nobody else wants the disk."""
    monkeypatch.setattr("infra.bundles._REST_S", 0.0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def resources(sqlite_template: Path, clock: ManualClock, folder: Path) -> Iterator[Resources]:
    file = folder / "store.db"
    file.write_bytes(sqlite_template.read_bytes())
    store = create_store(f"sqlite:///{file}", now_ns=clock.wall_ns)
    yield store.resources
    store.close()


@pytest.mark.parametrize("how", Trouble)
@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_a_call_of_the_cloud_fails(
    walk: Walk, how: Trouble, folder: Path, clock: ManualClock, resources: Resources
) -> None:
    seen = 0
    for n, rig in enumerate(rigs(folder, clock, resources), 1):
        walk.before(rig)
        began = len(rig.cloud.calls)
        rig.cloud.fail_at(n, how)
        failed = act(walk, rig)
        if len(rig.cloud.calls) - began < n:
            assert failed is None
            break
        seen += failed is not None
        if isinstance(failed, EnvironmentFault):
            rig.check_consistent()
            assert failed.evidence["reason"] == "refused"
        if how in (Trouble.THROTTLED, Trouble.LOST):
            assert failed is None, "one answer that does not come stops nobody"
        walk.act(rig)
        walk.done(rig)
    assert n > 4
    assert (seen > 0) is (how is Trouble.DIED or (how is Trouble.REFUSED and walk.tells))


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_the_cloud_is_away_from_a_call_on(
    walk: Walk, folder: Path, clock: ManualClock, resources: Resources
) -> None:
    for n, rig in enumerate(rigs(folder, clock, resources), 1):
        walk.before(rig)
        began = len(rig.cloud.calls)
        rig.cloud.fail_at(n, Trouble.LOST, FOR_LONG)
        failed = act(walk, rig)
        if len(rig.cloud.calls) - began < n:
            break
        assert (
            failed is None
            or getattr(failed, "code", "") == "cloud_away"
            or (isinstance(failed, EnvironmentFault) and failed.evidence["reason"] == "cloud_away")
        )
        rig.cloud.heal()
        walk.act(rig)
        walk.done(rig)
    assert n > 4


@pytest.mark.parametrize("how", [Trouble.REFUSED, Trouble.LOST, Trouble.DIED])
@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_a_call_of_the_rows_fails(
    walk: Walk, how: Trouble, folder: Path, clock: ManualClock, resources: Resources
) -> None:
    for n, rig in enumerate(rigs(folder, clock, resources), 1):
        walk.before(rig)
        began = len(rig.rows.calls)
        rig.rows.fail_at(n, how)
        failed = act(walk, rig)
        if len(rig.rows.calls) - began < n:
            assert failed is None
            break
        walk.act(rig)
        walk.done(rig)
    assert n > 2


def rigs(folder: Path, clock: ManualClock, resources: Resources) -> Iterator[Rig]:
    """A zone for each call that fails; the rows are those of one database."""
    for n in range(1, 200):
        yield Rig(folder / str(n), clock, resources, n)
    raise AssertionError("this verb asks without end")


def act(walk: Walk, rig: Rig) -> BaseException | None:
    try:
        walk.act(rig)
    except FAILURES as failure:
        return failure
    return None
