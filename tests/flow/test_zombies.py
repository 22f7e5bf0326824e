"""A worker process that was frozen wakes late: its machines are another's by now, and it touches none of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.domain.failure import Phase
from app.domain.fork import EndReason
from app.domain.run import Claimed, Exec, ExecPurpose
from app.errors import EnvironmentFault, FailureKind, StaleClaim
from app.flow import _claimed, collect, fork, recover, stop
from app.flow import exec as held_exec
from app.ports import HostPorts
from tests.flow.stage import PROJECT, Stage, definition, sim, spec

LOST = EnvironmentFault(FailureKind.GUEST_LOST, "its channel broke")
FULL = EnvironmentFault(FailureKind.HOST_DISK_FULL, "the host's disk is full")

Late = Callable[[Stage, HostPorts, Claimed], object]


def close(stage: Stage, zombie: HostPorts, claimed: Claimed) -> None:
    _claimed.close(stage.ports, zombie, claimed, EndReason.COMMAND_PASSED)


def fail(stage: Stage, zombie: HostPorts, claimed: Claimed) -> None:
    _claimed.fail(stage.ports, zombie, claimed, LOST, Phase.EXEC)


def fail_otherwise(stage: Stage, zombie: HostPorts, claimed: Claimed) -> None:
    _claimed.fail(stage.ports, zombie, claimed, FULL, Phase.EXEC)


def hand_over(stage: Stage, zombie: HostPorts, claimed: Claimed) -> None:
    _claimed.hand_over(stage.ports, zombie, claimed)


def launch(stage: Stage, zombie: HostPorts, claimed: Claimed) -> None:
    _claimed.launch(stage.ports, zombie, claimed, ExecPurpose.GRADE, sim("exit 0"))


@pytest.mark.parametrize("late", [close, fail, fail_otherwise, hand_over, launch])
def test_what_it_had_begun_ends_at_the_claim_and_not_at_the_machine(
    suite: Stage, late: Late
) -> None:
    run_id = suite.start(spec("20s exit 0", count=1))
    suite.run_for(3)
    zombie, claimed = suite.host, running(suite, run_id)
    taken_over(suite)
    with pytest.raises(StaleClaim):
        late(suite, zombie, claimed)
    assert lives(suite, claimed)
    page = suite.run_until_final(run_id)
    assert page["totals"]["passed"] == 1
    assert page["environment_failures"] == []
    assert set(suite.world.starts.values()) == {1}


def test_bells_that_it_had_taken_are_not_for_it_any_more(suite: Stage) -> None:
    run_id = suite.start(spec("20s exit 0", count=1))
    suite.run_for(3)
    zombie, claimed = suite.host, running(suite, run_id)
    taken_over(suite)
    suite.clock.advance(30)
    suite.world.pump()
    collect.collect(suite.ports, zombie, claimed.attempt.attempt_id)
    stop.cancel(suite.ports, PROJECT, run_id)
    stop.stop(suite.ports, zombie, claimed.attempt.attempt_id)
    assert lives(suite, claimed)
    assert running(suite, run_id).attempt.claim == suite.host.claim


def test_a_held_command_is_started_by_who_has_the_machine(suite: Stage) -> None:
    run_id = suite.start(spec(count=1, exec=None, hold_ns=600 * 10**9))
    suite.run_for(3)
    zombie, claimed = suite.host, running(suite, run_id)
    taken_over(suite)
    asked = Exec("e1", claimed.fork.fork_id, "", PROJECT, ExecPurpose.HELD, sim("exit 0"))
    suite.ports.execs.request(asked)
    assert not held_exec.start(suite.ports, zombie, "e1")
    assert "e1" not in suite.world.starts
    suite.run_for(3)
    assert suite.world.starts["e1"] == 1


def test_its_look_around_leaves_the_machines_of_others_alone(suite: Stage) -> None:
    run_id = suite.start(spec("20s exit 0", count=2))
    suite.run_for(3)
    zombie = suite.host
    taken_over(suite)
    suite.bells.waiting.clear()
    recover.watch_host(suite.ports, zombie)
    recover.sweep(suite.ports, zombie)
    assert suite.bells.waiting == type(suite.bells.waiting)()
    assert len(suite.host.machines.live()) == 2
    assert suite.run_until_final(run_id)["totals"]["passed"] == 2


def test_a_bring_up_that_woke_late_starts_no_machine(suite: Stage) -> None:
    run_id = suite.start(spec("5s exit 0", count=1))
    zombie = suite.host
    suite.ring_one(suite.bells.waiting.popleft())  # place

    class Frozen:
        """The process freezes as it is about to restore, and its window passes."""

        def __getattr__(self, name: str) -> Any:
            return getattr(zombie.machines, name)

        def restore(self, *given: Any) -> Any:
            suite.clock.advance(60)
            taken_over(suite)
            return zombie.machines.restore(*given)

    fork.advance(suite.ports, replace(zombie, machines=Frozen()))
    assert suite.host.machines.live() == ()
    page = suite.run_until_final(run_id)
    assert page["totals"]["passed"] == 1
    assert [each["kind"] for each in page["environment_failures"]] == ["worker_lost"]


def test_a_template_that_woke_late_leaves_its_build_as_it_is(stage: Stage) -> None:
    zombie = stage.host

    class Frozen:
        """The process freezes in the middle of its set-up; the next one gives the build up."""

        def __getattr__(self, name: str) -> Any:
            return getattr(zombie.guest, name)

        def quiesce(self, name: str) -> str:
            taken_over(stage)
            return zombie.guest.quiesce(name)

    stage.hosts["host0"] = replace(zombie, guest=Frozen())
    page = stage.build(definition())
    assert page["state"] == "failed"
    assert page["error"]["details"]["check"] == "template"
    assert stage.host.bundles.known() == ()


def test_of_two_that_find_a_process_dead_one_gets_its_machine(suite: Stage) -> None:
    run_id = suite.start(spec("20s exit 0", count=1))
    suite.run_for(3)
    old = suite.host
    first, second = replace(old, claim="first"), replace(old, claim="second")
    recover.adopt(suite.ports, first)
    recover.adopt(suite.ports, second, living=lambda: {"first", "second"})
    assert running(suite, run_id).attempt.claim == "first"
    suite.hosts["host0"] = first
    assert suite.run_until_final(run_id)["totals"]["passed"] == 1


def test_machines_of_a_process_that_lives_are_not_adopted(suite: Stage) -> None:
    run_id = suite.start(spec("20s exit 0", count=1))
    suite.run_for(3)
    beside = replace(suite.host, claim="beside")
    recover.adopt(suite.ports, beside, lambda: {suite.host.claim})
    assert running(suite, run_id).attempt.claim == suite.host.claim
    assert suite.run_until_final(run_id)["totals"]["passed"] == 1


def test_a_process_that_begins_while_others_are_looked_for_keeps_what_it_claims(
    suite: Stage,
) -> None:
    run_id = suite.start(spec("20s exit 0", count=1))
    suite.run_for(3)
    begun = replace(suite.host, claim="begun")

    def none_yet() -> frozenset[str]:
        recover.adopt(suite.ports, begun)
        return frozenset()

    recover.adopt(suite.ports, replace(suite.host, claim="frozen meanwhile"), none_yet)
    assert running(suite, run_id).attempt.claim == "begun"
    suite.hosts["host0"] = begun
    assert suite.run_until_final(run_id)["totals"]["passed"] == 1


def taken_over(stage: Stage) -> None:
    """Another process of the host has its machines now."""
    stage.hosts["host0"] = replace(stage.host, claim="host0/2")
    recover.adopt(stage.ports, stage.host)


def running(stage: Stage, run_id: str) -> Claimed:
    claimed = stage.ports.attempts.get(stage.ports.runs.forks(run_id)[0].attempt_id or "")
    assert claimed is not None
    return claimed


def lives(stage: Stage, claimed: Claimed) -> bool:
    name = claimed.attempt.attempt_id
    return stage.host.machines.death(name) is None and name in stage.host.machines.known()
