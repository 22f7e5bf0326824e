"""A host that breaks forks goes out of placement, tests itself, and comes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.machine import Deadline
from app.domain.money import NS_PER_SECOND
from app.domain.quarantine import Quarantine
from app.domain.trial import TRIAL_NS, trial_goes_on, trial_name
from app.errors import FailureKind
from app.flow import selftest
from infra.fakes.machines import RESTORE_KEY
from infra.fakes.traces import FakeTraces
from tests.flow.stage import PROJECT, Stage, definition, spec
from workers.reaping import host_reaper

BROKEN = FailureKind.RESTORE_FAILED


def quarantine_of(stage: Stage, host_id: str = "host0") -> Quarantine | None:
    (found,) = [host for host in stage.ports.hosts.list() if host.host_id == host_id]
    return found.quarantine


def break_host(stage: Stage) -> str:
    """Three forks that fail in their restore, for good."""
    stage.world.fault("restore", BROKEN, times=3)
    run_id = stage.start(spec(count=3, environment_retries=0))
    assert stage.run_until_final(run_id)["totals"]["env_failed"] == 3
    assert quarantine_of(stage) is not None
    return run_id


def wait_out(stage: Stage, seconds: float = 10) -> None:
    stage.clock.advance(seconds)
    stage.ports.hosts.heartbeat("host0", stage.host.bundles.mounted())


def test_a_host_comes_back_when_a_machine_comes_up_on_it(suite: Stage) -> None:
    break_host(suite)
    waiting = suite.start(spec(count=2))
    suite.run_for(5)
    assert suite.report(waiting)["totals"]["pending"] == 2
    assert selftest.run(suite.ports, suite.host) is None  # not due yet
    wait_out(suite)
    found = selftest.run(suite.ports, suite.host)
    assert found is not None
    assert found.released
    assert quarantine_of(suite) is None
    assert suite.host.machines.known() == ()
    assert suite.run_until_final(waiting)["totals"]["passed"] == 2


def test_a_host_that_is_still_broken_stays_out_and_is_asked_less_and_less_often(
    suite: Stage,
) -> None:
    break_host(suite)
    pauses = []
    for _ in range(3):
        suite.world.fault("restore", BROKEN)
        waited = 0
        while (found := selftest.run(suite.ports, suite.host)) is None:
            wait_out(suite, 1)
            waited += 1
        assert not found.released
        assert "planted in restore" in found.seen
        pauses.append(waited)
    assert pauses == sorted(set(pauses))
    held = quarantine_of(suite)
    assert held is not None
    assert held.last_test is not None
    assert "planted in restore" in held.last_test


@pytest.mark.parametrize("step", ["attach", "wake", "open", "probe"])
def test_nothing_of_a_self_test_is_left_wherever_it_fails(suite: Stage, step: str) -> None:
    break_host(suite)
    wait_out(suite)
    suite.world.fault(step, FailureKind.GUEST_HUNG)
    found = selftest.run(suite.ports, suite.host)
    assert found is not None
    assert not found.released
    assert suite.host.machines.known() == ()


def test_a_machine_that_does_not_keep_the_contract_does_not_pass(suite: Stage) -> None:
    break_host(suite)
    wait_out(suite)
    suite.world.lie("probe", disk_id="another")
    found = selftest.run(suite.ports, suite.host)
    assert found is not None
    assert not found.released
    assert "the disk probe does not hold" in found.seen


def test_a_bundle_that_is_broken_itself_keeps_no_host_out(suite: Stage) -> None:
    assert suite.build(definition(name="another"))["snapshot"] == "another@1"
    break_host(suite)
    wait_out(suite)
    suite.world.fault("restore", BROKEN)  # the suspect, once; the other bundle comes up
    found = selftest.run(suite.ports, suite.host)
    assert found is not None
    assert found.released


def test_a_host_without_a_bundle_boots_a_guests_kernel(suite: Stage) -> None:
    break_host(suite)
    for bundle_id in suite.host.bundles.known():
        suite.host.bundles.delete(bundle_id)
    wait_out(suite)
    suite.world.fault("prove", BROKEN)
    found = selftest.run(suite.ports, suite.host)
    assert found is not None
    assert "planted in prove" in found.seen
    wait_out(suite, 20)
    again = selftest.run(suite.ports, suite.host)
    assert again is not None
    assert again.released


def test_a_test_takes_no_room_of_forks_that_go_on(suite: Stage) -> None:
    suite.ports.hosts.register(suite.host.machines.fingerprint(), 2)
    run_id = suite.start(spec("500s", count=1))
    suite.run_for(3)
    break_host(suite)
    suite.ports.hosts.register(suite.host.machines.fingerprint(), 1)
    wait_out(suite)
    found = selftest.run(suite.ports, suite.host)
    assert found is not None
    assert not found.released
    assert "no room" in found.seen
    suite.ports.hosts.register(suite.host.machines.fingerprint(), 2)
    wait_out(suite, 20)
    found = selftest.run(suite.ports, suite.host)
    assert found is not None
    assert found.released
    assert suite.report(run_id)["totals"]["pending"] == 1


def test_two_worker_processes_of_a_host_test_it_once(suite: Stage) -> None:
    break_host(suite)
    wait_out(suite)
    suite.world.fault("restore", BROKEN)
    assert selftest.run(suite.ports, suite.host) is not None
    assert selftest.run(suite.ports, suite.host) is None


def test_what_an_operator_took_out_stays_out(suite: Stage) -> None:
    suite.ports.hosts.quarantine("host0", "its memory is being changed")
    wait_out(suite, 3600)
    assert selftest.run(suite.ports, suite.host) is None
    run_id = suite.start(spec(count=1))
    suite.run_for(3)
    waits = suite.ports.hosts.waiting(10)
    assert len(waits) == 1
    suite.ports.hosts.release("host0")
    assert suite.run_until_final(run_id)["totals"]["passed"] == 1


def test_what_waits_for_a_host_that_goes_out_is_taken_by_another(
    suite: Stage, tmp_path: Path
) -> None:
    suite.world.fault("restore", BROKEN, times=3)
    suite.add_host("host1", tmp_path, 100)
    run_id = suite.start(spec(count=6))
    page = suite.run_until_final(run_id)
    assert page["totals"]["passed"] == 6
    assert {each["host"] for each in page["environment_failures"]} == {"host0"}


def test_a_trials_machine_says_itself_until_when_it_may_live() -> None:
    begins_ns = 500 * NS_PER_SECOND + 1
    name = trial_name(begins_ns, begins_ns + TRIAL_NS, "ab12")
    assert trial_goes_on(name, begins_ns)
    assert trial_goes_on(name, begins_ns + TRIAL_NS)  # to the second
    assert not trial_goes_on(name, begins_ns + TRIAL_NS + NS_PER_SECOND)
    assert not trial_goes_on(name, 20)  # of an earlier boot of its host, whose clock began anew
    for other in ("att_1", "trial-x-9-ab12", "trial-9-x-ab12", "trial-", "trial-9"):
        assert not trial_goes_on(other, 9 * NS_PER_SECOND)


def test_a_worker_that_dies_in_its_self_test_leaves_a_machine_that_its_keeper_ends(
    suite: Stage,
) -> None:
    bundle = suite.host.bundles.open(suite.host.bundles.known()[0])
    ends_ns = suite.clock.boot_ns() + TRIAL_NS
    name = trial_name(suite.clock.boot_ns(), ends_ns, "ab12")
    suite.host.machines.restore(name, bundle, Deadline(ends_ns, ends_ns))
    suite.run_for(10)
    assert suite.host.machines.recover(name) is not None
    suite.clock.advance(TRIAL_NS / 1e9 + 1)
    suite.world.pump()
    assert suite.host.machines.recover(name) is None


def test_the_reaper_leaves_a_self_test_alone_until_its_time_is_over(suite: Stage) -> None:
    bundle = suite.host.bundles.open(suite.host.bundles.known()[0])
    ends_ns = suite.clock.boot_ns() + TRIAL_NS
    name = trial_name(suite.clock.boot_ns(), ends_ns, "ab12")
    suite.host.machines.restore(name, bundle, Deadline(ends_ns, ends_ns))
    reaper = host_reaper(suite.ports, suite.host, FakeTraces())
    reaper.turn()
    assert suite.host.machines.known() == (name,)
    suite.clock.advance(TRIAL_NS / 1e9 + 1)
    reaper.turn()
    assert suite.host.machines.known() == ()


def test_another_builds_bundle_does_not_bring_a_host_back_for_the_build_that_broke(
    suite: Stage, tmp_path: Path
) -> None:
    """The host has two QEMU builds; what broke forks is the older one, and only the newer one works."""
    newer = replace(RESTORE_KEY, qemu_build="fake-2")
    later = suite.add_host("host0", tmp_path, 100, (newer, RESTORE_KEY))
    assert suite.build(definition(name="of-the-newer"))["snapshot"] == "of-the-newer@1"
    assert suite.ports.snapshots.get(PROJECT, "of-the-newer").restore_key == newer
    break_host(suite)
    wait_out(suite)
    suite.world.fault("restore", BROKEN)
    found = selftest.run(suite.ports, later)
    assert found is not None
    assert not found.released
