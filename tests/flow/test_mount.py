"""Bundles that are stored elsewhere: no meter runs while one is mounted, and what is needed is never given up."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from app.domain.fork import ForkState
from app.domain.run import Group, RunSpec
from app.errors import EnvironmentFault, FailureKind, Unavailable
from app.flow import fork, mount
from app.ports import HostPorts
from app.ports.mounts import Mounts
from infra.fakes.disk import FakeDisk
from infra.fakes.machines import FakeBundles
from tests.flow.stage import PROJECT, Stage, definition, spec

GIB = 1 << 30
THROTTLED = EnvironmentFault(
    FailureKind.SNAPSHOT_UNAVAILABLE, "the cloud is busy", reason="throttled", request_id="r-1"
)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Stage]:
    """Two hosts that mount two bundles each; `task-suite@1` is stored, and mounted on neither."""
    made = Stage(tmp_path, hosts=2, elsewhere=True, mounts_max=2)
    assert made.build(definition())["snapshot"] == "task-suite@1"
    give_up_all(made)
    yield made
    made.stores.close()


def bundles(host: HostPorts) -> FakeBundles:
    return cast(FakeBundles, host.bundles)


def bundle_of(stage: Stage, ref: str = "task-suite") -> str:
    return stage.ports.snapshots.get(PROJECT, ref).bundle_id


def beat(stage: Stage) -> None:
    for host in stage.hosts.values():
        stage.ports.hosts.heartbeat(host.host_id, host.bundles.mounted())


def only(stage: Stage, host_id: str) -> HostPorts:
    """Forks go to this host alone."""
    for other in stage.hosts:
        if other != host_id:
            stage.ports.hosts.quarantine(other, "its memory is being changed")
    return stage.hosts[host_id]


def give_up_all(stage: Stage) -> None:
    for host in stage.hosts.values():
        host.bundles.release()
        assert host.bundles.mounted() == ()
    beat(stage)


class Slow(FakeBundles):
    """Mounts take three minutes; `during` is done in the middle of one."""

    def __init__(self, like: FakeBundles, stage: Stage) -> None:
        super().__init__(like._root, like._elsewhere)
        self._stage = stage
        self.during: Any = lambda: None

    def mount(self, bundle_id: str) -> None:
        if bundle_id not in self.known():
            self._stage.clock.advance(180)
            self.during()
        super().mount(bundle_id)


def of(name: str, text: str = "1s exit 0") -> RunSpec:
    """A step of one fork of this snapshot."""
    return spec(text, groups=(Group(name, 1),))


def slowly(stage: Stage, host_id: str) -> Slow:
    host = stage.hosts[host_id]
    slow = Slow(bundles(host), stage)
    stage.hosts[host_id] = replace(host, bundles=slow)
    return slow


def test_no_meter_runs_while_a_bundle_is_mounted(two: Stage) -> None:
    slow = slowly(two, "host1")
    only(two, "host1")
    run_id = two.start(spec("1s exit 0", count=3))
    seen: list[list[ForkState]] = []
    slow.during = lambda: seen.append([each.state for each in two.ports.runs.forks(run_id)])
    page = two.run_until_final(run_id)
    assert seen == [[ForkState.QUEUED] * 3]
    assert page["totals"]["passed"] == 3
    assert page["environment_failures"] == []
    assert max(each["seconds"] for each in page["forks"]) < 60
    assert page["cost"]["total_usd"] < 3 * 60 * 20e-6  # ten micro-dollars a second, and room


def test_a_fork_of_what_is_here_does_not_wait_for_one_that_is_not(two: Stage) -> None:
    assert two.build(definition(name="another"))["snapshot"] == "another@1"
    host = only(two, "host1")
    give_up_all(two)
    bundles(host).mount(bundle_of(two))
    beat(two)
    cold = two.start(of("another"))
    warm = two.start(spec(count=1))
    two.ports.bells.place()
    while two.bells.waiting and two.bells.waiting[0].task == "place":
        two.ring_one(two.bells.waiting.popleft())
    assert fork.advance(two.ports, host)
    assert not fork.advance(two.ports, host)
    states = [two.ports.runs.forks(run)[0].attempts for run in (cold, warm)]
    assert states == [0, 1]
    assert mount.due(two.ports, host) == (bundle_of(two, "another"),)


def test_a_failed_mount_is_the_failure_of_those_that_waited_and_they_go_elsewhere(
    two: Stage,
) -> None:
    slow = slowly(two, "host1")
    two.ports.hosts.quarantine("host0", "for now")
    slow.fault(bundle_of(two), THROTTLED)
    run_id = two.start(spec(count=2))
    two.ring()
    two.ports.hosts.release("host0")
    page = two.run_until_final(run_id)
    assert page["totals"]["passed"] == 2
    failed = page["environment_failures"]
    assert len(failed) == 2
    for each in failed:
        assert (each["host"], each["kind"]) == ("host1", "snapshot_unavailable")
        assert each["phase"] == "restore"
        assert each["evidence"]["reason"] == "throttled"
        assert each["evidence"]["request_id"] == "r-1"
        assert each["evidence"]["mount_tries"] == 1
    assert {each["host"] for each in page["forks"]} == {"host0"}


def test_a_bundle_that_nobody_can_mount_takes_no_host_out_of_placement(two: Stage) -> None:
    """A snapshot that is gone, or a cloud that is away, would take one after the other, and what is warm on them."""
    host = only(two, "host1")
    bundles(host).fault(bundle_of(two), THROTTLED)
    run_id = two.start(spec(count=4, environment_retries=0))
    page = two.run_until_final(run_id)
    assert [each["kind"] for each in page["environment_failures"]] == ["snapshot_unavailable"] * 4
    (seen,) = [each for each in two.ports.hosts.list() if each.host_id == "host1"]
    assert seen.quarantine is None
    assert [bundle_id for bundle_id, _ in seen.unmountable] == [bundle_of(two)]


def test_a_fork_that_comes_back_to_the_same_host_waits_for_the_next_try(two: Stage) -> None:
    slow = slowly(two, "host1")
    host = only(two, "host1")
    slow.fault(bundle_of(two), THROTTLED)
    run_id = two.start(spec(count=1))
    two.ring()
    (waits,) = two.ports.runs.forks(run_id)
    assert (waits.state, waits.attempts) == (ForkState.QUEUED, 1)
    assert mount.due(two.ports, host) == ()  # not yet
    assert two.run_until_final(run_id)["totals"]["passed"] == 1
    assert two.ports.runs.forks(run_id)[0].attempts == 2


def test_the_pauses_between_tries_grow_and_other_hosts_are_told(two: Stage) -> None:
    host, bundle_id = two.hosts["host1"], bundle_of(two)
    two.ports.warm.set(PROJECT, "task-suite", 2)
    beat(two)
    for _ in range(9):
        bundles(host).fault(bundle_id, THROTTLED)
    pauses: list[int] = []
    waited = 0
    while len(pauses) < 5:
        if host.mounts.may_begin(bundle_id, two.clock.boot_ns()):
            pauses.append(waited)
            assert mount.mount(two.ports, host, bundle_id) is not None
            waited = 0
        two.clock.advance(1)
        waited += 1
    assert pauses == [0, 2, 4, 8, 16]
    two.run_for(1)
    (seen,) = [each for each in two.ports.hosts.list() if each.host_id == "host1"]
    assert dict(seen.unmountable) == {bundle_id: "could not be mounted: the cloud is busy"}
    two.clock.advance(120)
    two.run_for(1)
    assert host.mounts.told(two.clock.boot_ns()) == ()


def test_a_cloud_that_is_away_is_a_failed_mount_like_any_other(
    two: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: object, bundle_id: str) -> None:
        raise Unavailable("cloud_away", f"no answer for {bundle_id}")

    host = only(two, "host1")
    monkeypatch.setattr(FakeBundles, "mount", away)
    fault = mount.mount(two.ports, host, bundle_of(two))
    assert fault is not None
    assert (fault.kind, fault.evidence["reason"]) == (
        FailureKind.SNAPSHOT_UNAVAILABLE,
        "cloud_away",
    )


@pytest.mark.parametrize("code", ["database_away", "bundle_busy"])
def test_what_says_nothing_of_the_bundle_fails_no_fork(
    two: Stage, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """The rows were away for a moment, or another process of this host is at it: those who wait go on waiting."""

    def away(_: object, bundle_id: str) -> None:
        raise Unavailable(code, f"not now, {bundle_id}")

    host = only(two, "host1")
    run_id = two.start(spec(count=1, environment_retries=0))
    with monkeypatch.context() as failing:
        failing.setattr(FakeBundles, "mount", away)
        two.run_for(1)
    fault = host.mounts.fault_of(bundle_of(two))
    assert fault is not None
    assert fault.evidence["reason"] == code
    page = two.run_until_final(run_id)
    assert (page["totals"]["passed"], page["environment_failures"]) == (1, [])


def test_a_mount_that_ends_without_a_word_gives_its_turn_back_and_pauses(
    two: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_: object, bundle_id: str) -> None:
        raise ZeroDivisionError(bundle_id)

    host, bundle_id = two.hosts["host1"], bundle_of(two)
    with monkeypatch.context() as broken:
        broken.setattr(FakeBundles, "mount", breaks)
        with pytest.raises(ZeroDivisionError):
            mount.mount(two.ports, host, bundle_id)
    assert host.mounts.coming() == frozenset()
    assert not host.mounts.may_begin(bundle_id, two.clock.boot_ns())
    two.clock.advance(2)
    assert mount.mount(two.ports, host, bundle_id) is None
    assert bundle_id in host.bundles.mounted()


def test_no_more_than_two_are_mounted_at_once_and_none_twice(two: Stage) -> None:
    mounts, now_ns = two.hosts["host1"].mounts, two.clock.boot_ns()
    assert mounts.begin("a", now_ns)
    assert not mounts.begin("a", now_ns)
    assert mounts.begin("b", now_ns)
    assert not mounts.begin("c", now_ns)
    mounts.end("a")
    assert mounts.begin("c", now_ns)


def test_a_try_that_takes_long_is_remembered_whatever_fails_meanwhile(two: Stage) -> None:
    """Its forks fail from its beginning on, those that came since wait for the next."""
    mounts, second_ns = two.hosts["host1"].mounts, 10**9
    assert mounts.begin("slow", 0)
    assert mounts.begin("bad", 0)
    mounts.failed("bad", THROTTLED, 200 * second_ns)
    mounts.failed("slow", THROTTLED, 300 * second_ns)
    mounts.end("slow")
    assert mounts.claimable((), 301 * second_ns).failed == {"slow": 301 * second_ns}


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
