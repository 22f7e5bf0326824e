"""Bundles that are stored elsewhere: what is needed is never given up, and what nobody needs makes room."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from app.errors import EnvironmentFault
from app.flow import fork, mount
from app.ports.mounts import Mounts
from infra.fakes.disk import FakeDisk
from tests.flow.elsewhere import (
    GIB,
    beat,
    bundle_of,
    give_up_all,
    of,
    only,
)
from tests.flow.stage import PROJECT, Stage, definition, spec


def three_snapshots(stage: Stage) -> tuple[str, str, str]:
    for name in ("second", "third"):
        assert stage.build(definition(name=name))["snapshot"] == f"{name}@1"
    give_up_all(stage)
    return (bundle_of(stage), bundle_of(stage, "second"), bundle_of(stage, "third"))


def test_before_one_too_many_the_least_recently_used_goes(two: Stage) -> None:
    first, second, third = three_snapshots(two)
    host = two.hosts["host1"]
    for bundle_id in (first, second):
        assert mount.mount(two.ports, host, bundle_id) is None
    host.bundles.open(first)
    assert mount.mount(two.ports, host, third) is None
    assert host.bundles.mounted() == (first, third)


def test_what_forks_run_on_or_wait_for_is_never_given_up(two: Stage) -> None:
    first, second, third = three_snapshots(two)
    host = only(two, "host1")
    for bundle_id in (first, second):
        mount.mount(two.ports, host, bundle_id)
    beat(two)
    two.start(spec("500s", count=1))
    two.run_for(3)
    assert mount.mount(two.ports, host, third) is None
    assert set(host.bundles.mounted()) == {first, third}


def test_where_all_are_needed_a_fork_waits_and_does_not_fail(two: Stage) -> None:
    first, second, third = three_snapshots(two)
    host = only(two, "host1")
    for bundle_id in (first, second):
        mount.mount(two.ports, host, bundle_id)
    beat(two)
    long = [two.start(of(name, "30s")) for name in ("task-suite", "second")]
    two.run_for(3)
    late = two.start(of("third"))
    two.run_for(10)
    assert set(host.bundles.mounted()) == {first, second}
    assert two.ports.runs.forks(late)[0].attempts == 0
    fault = host.mounts.fault_of(third)
    assert fault is not None
    assert fault.evidence["reason"] == "mounts_in_use"
    page = two.run_until_final(late)
    assert (page["totals"]["passed"], page["environment_failures"]) == (1, [])
    for run_id in long:
        assert two.run_until_final(run_id)["totals"]["passed"] == 1


def test_what_is_kept_warm_is_mounted_and_not_given_up(two: Stage) -> None:
    first, second, third = three_snapshots(two)
    host = two.hosts["host1"]
    two.ports.warm.set(PROJECT, "task-suite", 2)
    two.ports.warm.set(PROJECT, "second", 2)
    beat(two)
    assert set(mount.due(two.ports, host)) == {first, second}
    two.mount(host)
    assert set(host.bundles.mounted()) == {first, second}
    fault = mount.mount(two.ports, host, third)
    assert fault is not None
    two.ports.warm.set(PROJECT, "second", 0)
    two.clock.advance(2)
    beat(two)
    assert mount.mount(two.ports, host, third) is None
    assert set(host.bundles.mounted()) == {first, third}


def test_a_fork_that_waits_comes_before_what_is_only_kept_warm(two: Stage) -> None:
    """Or whoever sets enough warm targets would keep all others' forks waiting for ever."""
    first, second, third = three_snapshots(two)
    host = only(two, "host1")
    two.ports.warm.set(PROJECT, "task-suite", 2)
    two.ports.warm.set(PROJECT, "second", 2)
    beat(two)
    two.mount(host)
    assert set(host.bundles.mounted()) == {first, second}
    page = two.run_until_final(two.start(of("third")))
    assert (page["totals"]["passed"], page["environment_failures"]) == (1, [])
    assert third in host.bundles.mounted()
    two.clock.advance(130)
    beat(two)
    two.mount(host)
    assert set(host.bundles.mounted()) == {first, second}


def test_another_host_takes_the_place_of_one_that_dies(tmp_path: Path) -> None:
    stage = Stage(tmp_path, hosts=3, elsewhere=True)
    stage.build(definition())
    bundle_id = bundle_of(stage)
    stage.ports.warm.set(PROJECT, "task-suite", 2)
    for _ in range(3):
        beat(stage)
        for host in stage.hosts.values():
            stage.mount(host)
    warm = [name for name, host in stage.hosts.items() if bundle_id in host.bundles.mounted()]
    assert len(warm) == 2
    dead = stage.hosts.pop(warm[0])
    stage.clock.advance(16)
    for _ in range(2):
        beat(stage)
        for host in stage.hosts.values():
            stage.mount(host)
    assert all(bundle_id in host.bundles.mounted() for host in stage.hosts.values())
    assert bundle_id in dead.bundles.mounted()
    stage.stores.close()


def test_what_is_tried_out_is_not_given_up(two: Stage) -> None:
    host, bundle_id = two.hosts["host1"], bundle_of(two)
    mount.mount(two.ports, host, bundle_id)
    disk = cast(FakeDisk, host.disk)
    disk.left_bytes = GIB
    with host.mounts.using(bundle_id):
        assert mount.shed(two.ports, host) == ()
    assert mount.shed(two.ports, host) == (bundle_id,)


def test_nobody_claims_from_what_is_on_its_way_out(two: Stage) -> None:
    host, bundle_id = only(two, "host1"), bundle_of(two)
    mount.mount(two.ports, host, bundle_id)
    beat(two)
    run_id = two.start(spec(count=1))
    while two.bells.waiting and two.bells.waiting[0].task == "place":
        two.ring_one(two.bells.waiting.popleft())
    with host.mounts.leaving(bundle_id):
        assert not fork.advance(two.ports, host)
        with pytest.raises(EnvironmentFault, match="given up"), host.mounts.using(bundle_id):
            raise AssertionError("it may not be used")
    assert two.run_until_final(run_id)["totals"]["passed"] == 1


def test_who_gives_a_bundle_up_waits_for_claims_that_had_begun() -> None:
    mounts = Mounts()
    assert mounts.claims_ended(0)
    with ThreadPoolExecutor(1) as pool:
        with mounts.claiming():
            assert not mounts.claims_ended(0)
            answer = pool.submit(mounts.claims_ended, 10)
            assert not answer.done()
        assert answer.result(timeout=10)


def test_a_claim_that_ended_in_a_row_keeps_its_bundle(two: Stage) -> None:
    """It had begun before the bundle was to go, and the rows are read after it."""
    host, bundle_id = only(two, "host1"), bundle_of(two)
    mount.mount(two.ports, host, bundle_id)
    beat(two)
    two.start(spec("500s", count=1))
    while two.bells.waiting and two.bells.waiting[0].task == "place":
        two.ring_one(two.bells.waiting.popleft())
    cast(FakeDisk, host.disk).left_bytes = GIB
    assert mount.shed(two.ports, host) == ()
    assert host.bundles.mounted() == (bundle_id,)


def test_a_disk_that_fills_costs_what_nobody_needs_as_long_as_that_helps(two: Stage) -> None:
    first, second, _ = three_snapshots(two)
    host = only(two, "host1")
    for bundle_id in (first, second):
        mount.mount(two.ports, host, bundle_id)
    beat(two)
    run_id = two.start(spec("20s", count=1))
    two.run_for(3)
    disk = cast(FakeDisk, host.disk)
    assert mount.shed(two.ports, host) == ()
    disk.left_bytes = GIB
    two.run_for(1)
    (seen,) = [each for each in two.ports.hosts.list() if each.host_id == "host1"]
    assert seen.unready == "its disk is nearly full: 1.0 GiB left"
    waiting = two.start(spec(count=1))
    two.run_for(3)
    assert two.ports.runs.forks(waiting)[0].host_id is None
    assert mount.shed(two.ports, host) == (second,)
    assert mount.shed(two.ports, host) == ()
    disk.left_bytes = 9 * GIB
    for each in (run_id, waiting):
        assert two.run_until_final(each)["totals"]["passed"] == 1


def test_giving_up_stops_where_it_does_not_help(two: Stage) -> None:
    first, second, _ = three_snapshots(two)
    host = two.hosts["host1"]
    for bundle_id in (first, second):
        mount.mount(two.ports, host, bundle_id)
    disk = cast(FakeDisk, host.disk)
    disk.left_bytes = GIB
    assert mount.shed(two.ports, host) == (first,)
    assert mount.shed(two.ports, host) == ()
    disk.left_bytes = 9 * GIB
    assert mount.shed(two.ports, host) == ()
    disk.left_bytes = GIB
    assert mount.shed(two.ports, host) == (second,)


def test_what_is_on_its_hosts_own_disk_only_is_never_given_up(suite: Stage) -> None:
    disk = cast(FakeDisk, suite.host.disk)
    disk.left_bytes = GIB
    assert mount.shed(suite.ports, suite.host) == ()
    assert suite.host.bundles.mounted() == (bundle_of(suite),)
