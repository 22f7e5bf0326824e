"""Bundles that are stored elsewhere: no meter runs while one is mounted, and what cannot be fails those who wait."""

from __future__ import annotations

import pytest

from app.domain.fork import ForkState
from app.errors import FailureKind, Unavailable
from app.flow import fork, mount
from infra.fakes.machines import FakeBundles
from tests.flow.elsewhere import (
    THROTTLED,
    beat,
    bundle_of,
    bundles,
    give_up_all,
    of,
    only,
    slowly,
)
from tests.flow.stage import PROJECT, Stage, definition, spec


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
