"""A channel breaks, a machine is gone, a worker died in between: what was behind it is named, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from app.domain.death import fault_of
from app.domain.failure import Phase, failure
from app.domain.fork import EndReason, ForkState
from app.domain.machine import Command, Death, DeathCause
from app.domain.run import ExecState, GuestFaults
from app.errors import EnvironmentFault, FailureKind
from app.flow import bill, collect, hold, recover, stop
from app.flow._broken import CHANNEL_TRIES, PATIENCE_NS
from app.flow._claimed import close
from app.flow._results import exec_result
from app.ports import Guest
from infra.fakes.clock import ManualClock
from infra.fakes.machines import FakeMachines
from tests.flow.stage import PROJECT, Stage, sim, spec

TASK = GuestFaults.TASK
BROKEN = (FailureKind.GUEST_LOST, FailureKind.GUEST_HUNG)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", BROKEN)
def test_a_channel_that_breaks_at_a_start_ends_nothing(
    suite: Stage, kind: FailureKind, after: bool
) -> None:
    suite.world.fault("start", kind, times=CHANNEL_TRIES - 1, after=after)
    fork = ended(suite, spec("2s exit 3", count=1, guest_faults=TASK))
    assert (fork["outcome"], fork["exit_code"], fork["attempts"]) == ("failed", 3, 1)
    assert set(suite.world.starts.values()) == {1}


def test_a_channel_that_stays_broken_is_given_up(suite: Stage) -> None:
    suite.world.fault("start", FailureKind.GUEST_LOST, times=CHANNEL_TRIES)
    fork = ended(suite, spec("2s", count=1))
    assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "guest_hung")


def test_a_held_command_is_not_lost_to_a_channel_that_breaks_at_its_end(suite: Stage) -> None:
    run_id, fork_id = held(suite)
    suite.world.fault("end", FailureKind.GUEST_LOST)
    asked = hold.exec(suite.ports, PROJECT, fork_id, sim("0.1s print out exit 4"), None)
    suite.run_for(3)
    row = suite.ports.execs.get(PROJECT, fork_id, asked.exec_id)
    assert row.state is ExecState.ENDED
    assert row.result is not None
    assert (row.result.exit_code, row.result.stdout) == (4, "out\n")
    hold.release(suite.ports, PROJECT, fork_id, True, None)
    assert suite.run_until_final(run_id)["totals"]["passed"] == 1


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("step", ["attach", "open", "end"])
def test_a_channel_that_breaks_while_a_machine_is_adopted_ends_nothing(
    suite: Stage, step: str, kind: FailureKind
) -> None:
    run_id = running(suite, "20s exit 3", guest_faults=TASK)
    suite.world.fault(step, kind)
    next_worker(suite)
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["exit_code"], fork["failure"]) == ("failed", 3, None)
    assert set(suite.world.starts.values()) == {1}


def test_a_full_disk_of_the_host_is_named_by_whoever_adopts_its_machine(suite: Stage) -> None:
    run_id = running(suite, "20s", guest_faults=TASK)
    suite.world.fill_disk(machine(suite, run_id))
    next_worker(suite)
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "host_disk_full")


def test_a_machine_whose_host_was_started_anew_was_lost_with_its_host(suite: Stage) -> None:
    run_id = running(suite, "20s", guest_faults=TASK)
    restart_host(suite)
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "host_lost")
    assert fork["failure"]["task_may_have_caused"] is False


def test_nobody_waits_for_a_step_that_went_down_with_its_host(suite: Stage) -> None:
    run_id = running(suite, "20s")
    name = machine(suite, run_id)
    suite.host.machines.kill(name)
    clock = ManualClock(
        "00000000-0000-4000-8000-000000000002"
    )  # its readings are below those before
    suite.ports = replace(suite.ports, clock=clock)
    collect.collect(suite.ports, suite.host, name)
    (fork,) = suite.report(run_id)["forks"]
    assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "host_lost")


def test_a_saved_result_stands_whatever_becomes_of_its_host(suite: Stage) -> None:
    run_id = running(suite, "5s exit 3")
    save_result(suite, run_id)
    restart_host(suite)
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["exit_code"]) == ("failed", 3)


def test_a_saved_result_stands_though_its_machine_does_not_answer_any_more(suite: Stage) -> None:
    run_id = running(suite, "5s exit 3", guest_faults=TASK)
    save_result(suite, run_id)
    suite.world.hang(machine(suite, run_id))
    next_worker(suite)
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["reason"], fork["exit_code"]) == ("command_failed", 3)


def test_a_saved_result_stands_though_its_host_is_never_heard_of_again(suite: Stage) -> None:
    run_id = running(suite, "5s exit 3")
    save_result(suite, run_id)
    suite.hosts.clear()
    suite.clock.advance(7200)
    bill.tick(suite.ports)
    page = suite.report(run_id)
    (fork,) = page["forks"]
    assert (fork["outcome"], fork["exit_code"], fork["failure"]) == ("failed", 3, None)
    assert page["cost"]["environment_usd"] == 0 < page["cost"]["total_usd"]


def test_a_fork_that_was_cancelled_after_its_result_was_saved_lost_nothing_with_its_host(
    suite: Stage,
) -> None:
    run_id = running(suite, "5s exit 3")
    save_result(suite, run_id)
    stop.cancel(suite.ports, PROJECT, run_id)
    suite.hosts.clear()
    suite.clock.advance(7200)
    bill.tick(suite.ports)
    page = suite.report(run_id)
    (fork,) = page["forks"]
    assert (fork["outcome"], fork["reward"], fork["failure"]) == ("cancelled", None, None)
    assert page["environment_failures"] == []
    assert page["cost"]["environment_usd"] == 0 < page["cost"]["total_usd"]


def test_a_rule_that_came_after_a_result_was_saved_takes_nothing_from_it(suite: Stage) -> None:
    run_id = running(suite, "5s exit 3")
    save_result(suite, run_id)
    suite.ports.runs.ask_stop(run_id, EndReason.STOPPED_BY_RULE)
    suite.hosts.clear()
    suite.clock.advance(7200)
    bill.tick(suite.ports)
    (fork,) = suite.report(run_id)["forks"]
    assert (fork["reason"], fork["exit_code"], fork["failure"]) == ("command_failed", 3, None)


def test_a_machine_that_a_worker_ended_and_could_not_say_why_is_that_workers_loss(
    suite: Stage,
) -> None:
    run_id = running(suite, "20s", guest_faults=TASK)
    suite.host.machines.kill(machine(suite, run_id))  # and it died before it closed the attempt
    next_worker(suite)
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["reward"]) == ("env_failed", None)
    assert fork["failure"]["kind"] == "worker_lost"


def test_a_machine_that_another_step_is_just_ending_is_left_to_it(suite: Stage) -> None:
    run_id = running(suite, "20s")
    name = machine(suite, run_id)
    suite.host.machines.kill(name)
    collect.collect(suite.ports, suite.host, name)
    assert suite.ports.runs.forks(run_id)[0].state is ForkState.RUNNING
    suite.clock.advance(PATIENCE_NS / 1e9 + 1)
    collect.collect(suite.ports, suite.host, name)
    (fork,) = suite.report(run_id)["forks"]
    assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "worker_lost")


def test_a_start_that_breaks_since_its_command_was_collected_meanwhile_changes_nothing(
    suite: Stage,
) -> None:
    """Between a start and its answer the command ended, and another step that saved its result ends the machine."""
    guest = suite.host.guest

    class Late:
        def __getattr__(self, name: str) -> Any:
            return getattr(guest, name)

        def start(self, name: str, exec_id: str, command: Command) -> None:
            guest.start(name, exec_id, command)
            save_result(suite, run_id)
            suite.host.machines.kill(name)
            raise EnvironmentFault(FailureKind.GUEST_LOST, "its channel broke")

    suite.hosts["host0"] = replace(suite.host, guest=cast(Guest, Late()))
    run_id = suite.start(spec("5s", count=1))
    suite.ring()
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["exit_code"], fork["failure"]) == ("passed", 0, None)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_machine_that_is_found_silent_while_it_is_adopted_is_ended_once_and_named_once(
    suite: Stage, kind: FailureKind
) -> None:
    """It hangs: whoever collects it ends it for that, and whoever adopts it only finds it gone."""
    run_id = running(suite, "20s")
    guest = suite.host.guest

    class Hangs:
        def __getattr__(self, name: str) -> Any:
            return getattr(guest, name)

        def attach(self, name: str) -> None:
            suite.host.machines.kill(name)
            raise EnvironmentFault(kind, "its channel broke")

    suite.hosts["host0"] = replace(suite.host, claim="host0/2", guest=cast(Guest, Hangs()))
    recover.adopt(suite.ports, suite.host)
    assert suite.ports.runs.forks(run_id)[0].state is ForkState.RUNNING
    assert suite.report(run_id)["environment_failures"] == []
    claimed = suite.ports.attempts.get(machine(suite, run_id))
    assert claimed is not None
    hung = failure(EnvironmentFault(FailureKind.GUEST_HUNG, "silent"), Phase.EXEC)
    close(suite.ports, suite.host, claimed, EndReason.ENVIRONMENT_FAILED, failed=hung)
    (failed,) = suite.report(run_id)["environment_failures"]
    assert failed["kind"] == "guest_hung"


def test_a_lease_that_ends_while_no_worker_looks_is_no_fault_of_the_guest(suite: Stage) -> None:
    run_id = running(suite, "5s exit 0", guest_faults=TASK)
    suite.clock.advance(7200)  # the command has long ended, and nobody was there to hear it
    suite.world.pump()
    next_worker(suite)
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "worker_lost")


def test_a_machine_that_died_before_its_first_command_is_replaced(suite: Stage) -> None:
    run_id, fork_id = held(suite)
    suite.bells.waiting.clear()
    first = machine(suite, run_id)
    suite.world.die(first, DeathCause.SIGNAL, 9)
    suite.bells.waiting.clear()  # nobody hears it
    hold.exec(suite.ports, PROJECT, fork_id, sim("1s"), "mine")
    suite.ring()
    suite.run_for(5)
    (fork,) = suite.ports.runs.forks(run_id)
    assert (fork.state, fork.attempts) == (ForkState.READY, 2)
    assert suite.world.starts["mine"] == 0
    (failed,) = suite.report(run_id)["environment_failures"]
    assert (failed["kind"], failed["task_may_have_caused"]) == ("guest_lost", False)


def test_what_was_lost_after_a_command_ended_is_not_held_against_it(suite: Stage) -> None:
    run_id = running(suite, "2s exit 1", egress=("policy.internal:8000",))
    name = machine(suite, run_id)
    suite.clock.advance(60)  # it has ended, and its worker was away
    suite.world.lose_egress(name, "policy.internal:8000", "reset")
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["exit_code"]) == ("failed", 1)


def test_a_death_behind_a_fault_that_says_what_it_met_says_so_too() -> None:
    met = EnvironmentFault(FailureKind.WORKER_LOST, "it could not go on", met="database_away")
    named = fault_of(met, Death(DeathCause.EXIT, 1, None, 7))
    assert (named.kind, named.evidence["met"]) == (FailureKind.GUEST_LOST, "database_away")


def ended(suite: Stage, given: Any) -> dict[str, Any]:
    """The one fork of a run at its end."""
    (fork,) = suite.run_until_final(suite.start(given))["forks"]
    return dict(fork)


def running(suite: Stage, text: str, **more: Any) -> str:
    """A run of one fork whose command has started."""
    run_id = suite.start(spec(text, count=1, **more))
    suite.ring()
    assert suite.ports.runs.forks(run_id)[0].state is ForkState.RUNNING
    return run_id


def save_result(suite: Stage, run_id: str) -> None:
    """Its command ends and its worker saves the result, and dies before it does more."""
    claimed = suite.ports.attempts.get(machine(suite, run_id))
    assert claimed is not None
    suite.clock.advance(5)
    (task,) = suite.ports.execs.unfinished(claimed.attempt.attempt_id)
    end = suite.host.guest.end(claimed.attempt.attempt_id, task.exec_id)
    assert end is not None
    suite.ports.execs.finish(claimed, replace(task, result=exec_result(suite.ports, end)))


def held(suite: Stage) -> tuple[str, str]:
    """A run of one fork that its caller holds."""
    run_id = suite.start(spec(count=1, exec=None, hold_ns=600 * 10**9))
    suite.run_for(2)
    (fork,) = suite.ports.runs.forks(run_id)
    assert fork.state is ForkState.READY
    return run_id, fork.fork_id


def machine(suite: Stage, run_id: str) -> str:
    return suite.ports.runs.forks(run_id)[0].attempt_id or ""


def next_worker(suite: Stage) -> None:
    suite.hosts["host0"] = replace(suite.host, claim="host0/2")
    recover.adopt(suite.ports, suite.host)


def restart_host(suite: Stage) -> None:
    """The host went down with its machines and came back: another boot, whose clock began anew."""
    suite.world.go_down()
    clock = ManualClock("00000000-0000-4000-8000-000000000002")
    clock.advance(suite.clock.boot_ns() / 1e9)
    suite.world.clock = clock
    suite.ports = replace(suite.ports, clock=clock)
    suite.clock = clock
    machines = FakeMachines(suite.world, "host0")
    suite.hosts["host0"] = replace(suite.host, claim="host0/2", machines=machines)
    recover.adopt(suite.ports, suite.host)
