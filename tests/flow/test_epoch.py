"""A database that is put back from a backup: who notices, what nobody does until it is said, and what
becomes of it all.

The backup is real: the rows as they were at one moment, put in place of those that there are.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.deployment import FIRST_EPOCH
from app.domain.fork import ForkState, Outcome
from app.domain.run import Claimed, Fork
from app.errors import FailureKind
from app.flow import leaks
from infra.epochs import CONTROL, HOST, EpochMemory
from infra.fakes.traces import FakeTraces
from tests.contract.rows import Rows
from tests.flow.stage import Stage, definition, sim, spec
from workers.standing import NEW_EPOCH, ControlStanding, HostStanding


class Ended(BaseException):
    """The process, with its exit code."""


class Deployment:
    """A stage whose host and control plane remember, with a backup of its rows."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage, self._folder = stage, folder
        self.begin()
        self._backup = b""

    def begin(self) -> None:
        """Both processes begin."""
        ports = self.stage.ports
        self.control = ControlStanding(ports, EpochMemory(self._folder, CONTROL))
        self.host = HostStanding(ports, self.stage.host, EpochMemory(self._folder, HOST))
        self.host.begin()

    def look(self, times: int = 1) -> tuple[bool, bool]:
        for _ in range(times):
            seen = self.control.look(), self.host.look()
        return seen

    def back_up(self) -> None:
        self._backup = _driver(self.stage).serialize()

    def restore(self) -> None:
        _driver(self.stage).deserialize(self._backup)

    def say_so(self) -> int:
        return self.stage.ports.deployments.begin_epoch().epoch

    def settle(self) -> None:
        self.host.look_for_lost()
        self.host.settle(frozenset)

    def laws(self) -> None:
        Rows(self.stage.stores, self.stage.clock).check_laws()


@pytest.fixture
def kept(suite: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    def ends(code: int) -> None:
        raise Ended(str(code))

    monkeypatch.setattr("workers.standing.os._exit", ends)
    made = Deployment(suite, tmp_path)
    made.look(3)
    return made


def test_what_goes_on_is_believed(kept: Deployment) -> None:
    assert kept.look(5) == (True, True)
    kept.begin()
    assert kept.look() == (True, True)
    assert kept.stage.ports.deployments.now().epoch == FIRST_EPOCH


def test_a_standby_that_has_lost_nothing_takes_over_unnoticed(kept: Deployment) -> None:
    kept.back_up()
    kept.restore()
    assert kept.look() == (True, True)


def test_who_remembers_more_stands_still_and_says_so(kept: Deployment) -> None:
    run_id = kept.stage.start(spec("600s exit 0", count=2))
    kept.stage.run_for(3)
    kept.back_up()
    later = kept.stage.start(spec("600s exit 0", count=1))
    kept.stage.run_for(3)
    kept.look(4)
    kept.restore()
    beat = kept.stage.ports.deployments.now().beat
    assert kept.look(3) == (False, False)
    assert kept.host.astray.is_set()
    assert len(kept.stage.host.machines.live()) == 3
    assert [fork.state for fork in kept.stage.ports.runs.forks(run_id)] == [ForkState.RUNNING] * 2
    (host,) = kept.stage.ports.hosts.list()
    assert (host.unready or "").startswith("database_went_back: it remembers beat")
    assert kept.stage.ports.deployments.now().beat == beat
    assert later not in {run.run_id for run in kept.stage.ports.runs.list("default", {}, 10, None)}


def test_a_control_plane_without_a_memory_believes_most_of_its_hosts(
    kept: Deployment, tmp_path: Path
) -> None:
    kept.back_up()
    kept.look(3)
    kept.restore()
    (tmp_path / "deployment.control.json").unlink()
    kept.host.look()
    assert not kept.control.look()


def test_one_host_of_three_stops_nobody_else(kept: Deployment, tmp_path: Path) -> None:
    for name in ("host1", "host2"):
        kept.stage.add_host(name, tmp_path, 4)
    kept.stage.ports.deployments.tell_ahead("host1", (10**6, 10**6))
    assert kept.look() == (True, True)
    shut = {host.host_id for host in kept.stage.ports.hosts.list() if not host.takes_forks}
    assert shut == {"host1"}


def test_an_epoch_ends_every_machine_of_those_before(kept: Deployment) -> None:
    """One from before the backup and one from after it; both forks are judged by what may have begun in them."""
    stage = kept.stage
    before = stage.start(spec("600s exit 0", count=1))
    stage.run_for(3)
    kept.back_up()
    stage.start(spec("600s exit 0", count=1))
    stage.run_for(30)
    kept.look(4)
    kept.restore()
    kept.look()
    assert len(stage.host.machines.live()) == 2
    began = kept.say_so()
    with pytest.raises(Ended, match=str(NEW_EPOCH)):
        kept.look()
    assert stage.host.machines.live() == ()
    kept.begin()
    assert kept.look() == (True, True)
    kept.settle()
    (fork,) = stage.ports.runs.forks(before)
    assert (fork.state, fork.outcome) == (ForkState.ENDED, Outcome.ENV_FAILED)
    assert fork.failure is not None
    assert fork.failure.kind is FailureKind.WORKER_LOST
    said = fork.failure.evidence
    assert (said["epoch"], said["began_in_epoch"], said["command_begun"]) == (began, 1, True)
    kept.laws()
    after = stage.run_until_final(stage.start(spec(count=2)))
    assert after["totals"]["passed"] == 2
    assert {each.attempt.epoch for each in _attempts(stage, after["run_id"])} == {began}
    kept.laws()


def test_a_fork_in_which_nothing_began_is_replaced(kept: Deployment) -> None:
    """It is held, and nobody had given it a command."""
    stage = kept.stage
    run_id = stage.start(spec(count=1, exec=None, hold_ns=600 * 10**9))
    stage.run_for(3)
    kept.back_up()
    kept.look(2)
    kept.restore()
    kept.say_so()
    with pytest.raises(Ended):
        kept.look()
    kept.begin()
    kept.settle()
    (fork,) = stage.ports.runs.forks(run_id)
    assert (fork.state, fork.attempts) == (ForkState.QUEUED, 1)
    kept.laws()
    stage.run_for(3)
    (fork,) = stage.ports.runs.forks(run_id)
    assert (fork.state, fork.attempts) == (ForkState.READY, 2)
    kept.laws()


def test_a_command_whose_intent_was_lost_is_not_started_again(kept: Deployment) -> None:
    """The backup is from before it; the host's own mark of it is beside the machine."""
    stage = kept.stage
    stage.build(definition(name="slow", test=sim("20s exit 0")))
    groups = (replace(spec().groups[0], snapshot="slow", count=1),)
    run_id = stage.start(spec("600s exit 0", groups=groups, verify_each=True))
    stage.run_for(5)
    assert [fork.state for fork in stage.ports.runs.forks(run_id)] == [ForkState.CHECKING]
    kept.back_up()
    stage.run_for(30)
    assert [fork.state for fork in stage.ports.runs.forks(run_id)] == [ForkState.RUNNING]
    kept.look(2)
    kept.restore()
    kept.say_so()
    with pytest.raises(Ended):
        kept.look()
    kept.begin()
    kept.settle()
    (fork,) = stage.ports.runs.forks(run_id)
    assert (fork.outcome, fork.attempts) == (Outcome.ENV_FAILED, 1)
    assert fork.failure is not None
    assert fork.failure.evidence["command_begun"] is True
    kept.laws()


def test_a_machine_that_ended_meanwhile_is_charged_what_it_lived_at_most(kept: Deployment) -> None:
    stage = kept.stage
    run_id = stage.start(spec("20s exit 0", count=1))
    stage.run_for(3)
    kept.back_up()
    whole = stage.run_until_final(run_id)
    assert whole["totals"]["passed"] == 1
    kept.look(2)
    kept.restore()
    kept.say_so()
    with pytest.raises(Ended):
        kept.look()
    kept.begin()
    kept.settle()
    (attempt,) = (each.attempt for each in _attempts(stage, run_id))
    assert attempt.closed_boot_ns is not None
    assert attempt.closed_boot_ns <= attempt.deadline_boot_ns
    assert attempt.failure is not None
    assert attempt.failure.evidence["known_here"] is False
    kept.laws()


def test_a_host_that_was_cut_off_ends_its_machines_when_it_comes_back(kept: Deployment) -> None:
    """It never saw the database go back; an hour later it sees the epoch."""
    stage = kept.stage
    kept.back_up()
    stage.start(spec("7200s exit 0", count=2))
    stage.run_for(3)
    kept.look()
    kept.restore()
    kept.say_so()
    for _ in range(50):
        assert kept.control.look()
    assert len(stage.host.machines.live()) == 2
    with pytest.raises(Ended):
        kept.host.look()
    assert stage.host.machines.live() == ()
    kept.laws()


def test_a_machine_that_no_row_ever_knew_shows_it_too(kept: Deployment) -> None:
    """Nobody who remembers a beat was there, and by now the database has come as far."""
    stage = kept.stage
    kept.back_up()
    stage.start(spec("600s exit 0", count=1))
    stage.run_for(3)
    kept.restore()
    assert kept.look(5) == (True, True)
    kept.host.look_for_lost()
    assert not kept.host.look()
    assert leaks.on_host(stage.ports, stage.host, FakeTraces()) == frozenset()
    assert len(stage.host.machines.live()) == 1
    for name in [each.name for each in stage.host.machines.live()]:
        stage.host.machines.kill(name)
    kept.host.look_for_lost()
    # With its machine the host's word is gone too: it does not go on beside a control plane that stands still for it.
    assert kept.look(3) == (True, True)
    assert stage.ports.deployments.ahead() == (0, 1)


def test_a_host_whose_worker_begins_after_the_epoch_has_nothing_to_tell(kept: Deployment) -> None:
    """Its machine is from after the backup: no row knows it, and that was said."""
    stage = kept.stage
    kept.back_up()
    stage.start(spec("600s exit 0", count=1))
    stage.run_for(3)
    kept.look(4)
    kept.restore()
    kept.say_so()
    kept.begin()
    assert stage.host.machines.live() == ()
    assert kept.look(3) == (True, True)


def test_a_host_that_forgot_ends_what_is_of_earlier_epochs(
    kept: Deployment, tmp_path: Path
) -> None:
    stage = kept.stage
    kept.back_up()
    stage.start(spec("600s exit 0", count=1))
    stage.run_for(3)
    kept.restore()
    kept.say_so()
    (tmp_path / "deployment.host.json").unlink(missing_ok=True)
    kept.begin()
    kept.settle()
    assert kept.look(3) == (True, True)
    assert stage.host.machines.live() == ()


def test_a_second_restore_of_the_same_backup_is_another_epoch(kept: Deployment) -> None:
    kept.back_up()
    kept.look(2)
    kept.restore()
    first = kept.say_so()
    kept.stage.clock.advance(60)
    kept.restore()
    second = kept.say_so()
    assert FIRST_EPOCH < first < second


def test_a_copy_is_another_deployment(kept: Deployment) -> None:
    """A host of the one that comes to the other by mistake, with machines, does nothing there."""
    stage = kept.stage
    stage.start(spec("600s exit 0", count=1))
    stage.run_for(3)
    kept.look()
    before = stage.ports.deployments.now()
    copied = stage.ports.deployments.begin_epoch(copy=True)
    assert copied.deployment_id != before.deployment_id
    assert not kept.host.look()
    (machine,) = stage.host.machines.live()
    assert stage.ports.hosts.list()[0].ahead is None
    stage.host.machines.kill(machine.name)
    with pytest.raises(Ended):
        kept.host.look()


def test_bundles_from_before_are_left_for_a_while(kept: Deployment) -> None:
    """One was stored after the backup: no row knows it, and it is no leak for seven days."""
    stage = kept.stage
    kept.back_up()
    assert stage.build(definition(name="later"))["snapshot"] == "later@1"
    later = stage.ports.snapshots.get("default", "later").bundle_id
    kept.look(2)
    kept.restore()
    kept.say_so()
    with pytest.raises(Ended):
        kept.look()
    kept.begin()
    assert later in kept.host.spared()
    assert leaks.on_host(stage.ports, stage.host, FakeTraces(), kept.host.spared()) == frozenset()
    stage.clock.advance(8 * 24 * 3600)
    kept.look()
    assert kept.host.spared() == frozenset()
    found = leaks.on_host(stage.ports, stage.host, FakeTraces(), kept.host.spared())
    assert {leak.name for leak in found} == {later}


def test_files_from_before_are_left_for_a_while(kept: Deployment) -> None:
    stage = kept.stage
    sha256 = stage.put(b"of a definition that came after the backup")
    kept.say_so()
    blobs = stage.ports.blobs

    def named() -> set[str]:
        return {leak.name for leak in leaks.of_blobs(stage.ports, stage.stores.leaks)}

    old = frozenset({sha256})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(blobs), "older_than", lambda _self, _age_ns: old)
        stage.clock.advance(2 * 24 * 3600)
        assert named() == set()
        stage.clock.advance(6 * 24 * 3600)
        assert named() == {sha256}


def _attempts(stage: Stage, run_id: str) -> list[Claimed]:
    found = (stage.ports.attempts.get(fork.attempt_id or "") for fork in _forks(stage, run_id))
    return [each for each in found if each is not None]


def _forks(stage: Stage, run_id: str) -> tuple[Fork, ...]:
    return stage.ports.runs.forks(run_id)


def _driver(stage: Stage) -> sqlite3.Connection:
    with closing(stage.stores.database.engine.raw_connection()) as lent:
        driver = lent.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver
