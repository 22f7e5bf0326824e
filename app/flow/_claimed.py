"""What the verbs that hold a machine share: its definition, launching a command, and the ways an attempt is closed.

Every write names the claim. If another worker holds it by now, the store raises StaleClaim and the late result is
dropped: rows are the new holder's, and so is the machine.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

from app.domain.checks import Check
from app.domain.death import end_of, fault_of
from app.domain.failure import GUEST_FAULTS, Failure, Phase, failure
from app.domain.fork import KEEPABLE, EndReason, ForkState
from app.domain.machine import Death, DeathCause, Identity
from app.domain.measure import Step
from app.domain.run import (
    Claimed,
    Closed,
    Closing,
    Exec,
    ExecPurpose,
    ExecSpec,
    Fork,
    GuestFaults,
    Result,
    Role,
    Verdict,
)
from app.domain.snapshot import Definition
from app.domain.spec import command, targets
from app.errors import EnvironmentFault, FailureKind, StaleClaim, Unavailable
from app.flow._broken import (
    PATIENCE_NS,
    answers,
    death_behind,
    is_left_to_another,
    over_channel,
    seen_behind,
    silence_behind,
)
from app.ports import HostPorts, Ports

# Evidence that a guest's fault is not the doing of its task, though it came after the task's command began.
NOT_INSIDE = ("victim_elsewhere", "killed_from_outside")
COMING_UP = frozenset({ForkState.RESTORING, ForkState.CHECKING})
PATIENCE_PAUSE_S = 0.5

T = TypeVar("T")


@contextmanager
def late_results_dropped() -> Iterator[None]:
    """Around whatever acts under a claim: losing it is not an error, there is only nothing more to do."""
    with suppress(StaleClaim):
        yield


def patiently(ports: Ports, act: Callable[[], T]) -> T:
    """Do what an attempt cannot go on without, again and again while the database is away for up to a minute.

    Raises its Unavailable then.
    """
    last_ns = ports.clock.boot_ns() + PATIENCE_NS
    while True:
        try:
            return act()
        except Unavailable:
            if ports.clock.boot_ns() > last_ns:
                raise
        ports.clock.pause(PATIENCE_PAUSE_S)


def unsaved(away: Unavailable) -> EnvironmentFault:
    """What a machine is ended for whose bring-up could not be saved for all the patience."""
    return EnvironmentFault(
        FailureKind.WORKER_LOST,
        f"its worker could not go on while it brought the machine up: {away.message}",
        met=away.code,
    )


def definition_of(ports: Ports, claimed: Claimed) -> Definition:
    """What the fork's snapshot, or the build that it verifies, was defined as."""
    build = patiently(ports, lambda: ports.builds.of_run(claimed.run.run_id))
    if build is not None:
        return build.definition
    project_id, snapshot = claimed.run.project_id, claimed.fork.snapshot
    return patiently(ports, lambda: ports.snapshots.get(project_id, snapshot)).definition


def generation_of(claimed: Claimed) -> str:
    """The generation id of this attempt's machine: a UUID that no sibling and no earlier attempt has."""
    digits = claimed.attempt.attempt_id.partition("_")[2].ljust(32, "0")[:32]
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def identity_of(ports: Ports, claimed: Claimed, hostname: str) -> Identity:
    """What a machine is told to be from now on: names, and ids and randomness that no sibling has."""
    return Identity(
        fork_id=claimed.fork.fork_id,
        hostname=hostname,
        generation=generation_of(claimed),
        machine_id=secrets.token_hex(16),
        nonce=secrets.token_hex(16),
        entropy=secrets.token_bytes(64),
        wall_ns=ports.clock.wall_ns(),
    )


def own_exec_id(purpose: ExecPurpose, attempt_id: str) -> str:
    """The id of a run's own command on a machine: one of each purpose, found again by whoever comes after."""
    return f"{purpose.value}_{attempt_id}"


def launch(
    ports: Ports, host: HostPorts, claimed: Claimed, purpose: ExecPurpose, spec: ExecSpec
) -> None:
    """Start one of the run's own commands: the intent first, then the first byte to the guest."""
    attempt = claimed.attempt
    asked = Exec(
        exec_id=own_exec_id(purpose, attempt.attempt_id),
        fork_id=claimed.fork.fork_id,
        attempt_id=attempt.attempt_id,
        project_id=claimed.fork.project_id,
        purpose=purpose,
        spec=spec,
    )
    begin(ports, host, claimed, asked)


def begin(ports: Ports, host: HostPorts, claimed: Claimed, asked: Exec) -> bool:
    """Commit the intent of a command and start it; False if another worker did. Raises EnvironmentFault."""
    spec = asked.spec
    # What had ended before is no doing of this command, and its fork may have another machine.
    if host.machines.death(claimed.attempt.attempt_id) is not None:
        raise EnvironmentFault(FailureKind.GUEST_LOST, "the machine had ended before")
    if spec is None or patiently(ports, lambda: ports.execs.intend(claimed, asked)) is None:
        return False
    start_intended(ports, host, claimed, asked.exec_id, spec)
    return True


def start_intended(
    ports: Ports, host: HostPorts, claimed: Claimed, exec_id: str, spec: ExecSpec
) -> None:
    """Start a command whose intent is committed. Twice is safe: the guest starts no id twice. May raise as `begin`."""
    allowed = targets(claimed.run.spec, definition_of(ports, claimed))
    told = command(claimed, spec, generation_of(claimed), allowed)
    told = replace(told, grades=_graded(claimed, exec_id))
    name = claimed.attempt.attempt_id
    if name in exec_id:  # one of the run's own, whose end is judged by what happens from now on
        host.machines.mark(name, exec_id)
    began_ns = ports.clock.boot_ns()
    over_channel(host, name, lambda: host.guest.start(name, exec_id, told))
    ports.measures.took(Step.EXEC_START, ports.clock.boot_ns() - began_ns)


def _graded(claimed: Claimed, exec_id: str) -> str | None:
    """Of a run's grade: the command that it grades."""
    name = claimed.attempt.attempt_id
    is_grade = claimed.run.spec.grade and exec_id == own_exec_id(ExecPurpose.GRADE, name)
    return own_exec_id(ExecPurpose.TASK, name) if is_grade else None


def hand_over(ports: Ports, host: HostPorts, claimed: Claimed, tested: Exec | None = None) -> None:
    """Verification is over (`tested` is its own test, if it ran): the fork is ready, and a run's command starts."""
    checks = claimed.fork.checks if tested is None else (*claimed.fork.checks, _own_test(tested))
    ready_ns = ports.clock.boot_ns()
    claimed = patiently(ports, lambda: ports.attempts.ready(claimed, ready_ns, checks))
    ports.measures.took(Step.READY, ready_ns - claimed.attempt.opened_boot_ns)
    ports.bells.fork(host.host_id)  # there is room for the next to come up
    if tested is not None:
        ports.execs.finish(claimed, tested)
    if claimed.run.spec.exec is None:
        return
    with failing(ports, host, claimed, Phase.EXEC):
        launch(ports, host, claimed, ExecPurpose.TASK, claimed.run.spec.exec)


def _own_test(tested: Exec) -> Check:
    seconds = tested.result.duration_ns / 1e9 if tested.result else 0.0
    return Check("test", sound=True, seen="the snapshot's own test passed", seconds=seconds)


@contextmanager
def failing(ports: Ports, host: HostPorts, claimed: Claimed, phase: Phase) -> Iterator[None]:
    """A fault of the environment inside ends the attempt, named, in this phase."""
    try:
        yield
    except EnvironmentFault as fault:
        fail(ports, host, claimed, fault, phase)


def fail(
    ports: Ports,
    host: HostPorts,
    claimed: Claimed,
    fault: EnvironmentFault,
    phase: Phase,
    *,
    result: Result | None = None,
) -> None:
    """Close an attempt that the environment failed: replaced where the rules allow it, else the fork ends.

    `result` is what its command had left behind by then, for people to read; there is no reward in it.
    A channel that broke because another step of ours ends the machine is no failure: that step says how the fork ended.
    """
    name = claimed.attempt.attempt_id
    present = still_held(ports, claimed)
    if is_left_to_another(ports, host, present, fault):
        return
    fault = seen_behind(ports, host, present, fault)
    silence = silence_behind(host, name, fault, own_exec_id(ExecPurpose.TASK, name))
    death = death_behind(host, name, fault)
    if death is not None:
        reason = end_of(present, death)
        if reason is not None and not _shut_down_in_its_grade(reason, phase):
            close(ports, host, claimed, reason, result=Result(reward=present.fork.result.reward))
            return
        fault = fault_of(fault, death, host.machines.console_tail(name))
    seen = {
        **silence.evidence,
        "monitor_events": [event.name for event in host.machines.events(name)],
        "console_tail": host.machines.console_tail(name),
    }
    fault = EnvironmentFault(fault.kind, fault.message, **{**seen, **fault.evidence})
    by_guest = present.attempt.intent and not silence.by_host
    named = failure(fault, phase, command_may_have_started=by_guest)
    then = after_failure(present, named)
    if then is not None and then is present.fork.stop_asked:
        # It was to stop anyway: a machine that is ended meanwhile has failed nobody.
        close(ports, host, claimed, then, result=Result(reward=present.fork.result.reward))
        return
    if then is None:
        close(ports, host, claimed, None, failed=named, result=result)
    else:
        conclude(ports, host, claimed, then, failed=named, result=result)


def still_held(ports: Ports, claimed: Claimed) -> Claimed:
    """The rows as they are, before anything is done to the machine. Raises StaleClaim when it is another's by now.

    The fence in the rows would come too late for a process that was frozen: it drops the write, after the kill.
    """
    name = claimed.attempt.attempt_id
    present = patiently(ports, lambda: ports.attempts.get(name))
    if present is None or present.attempt.closed_boot_ns is not None:
        raise StaleClaim(name)
    if present.attempt.claim != claimed.attempt.claim:
        raise StaleClaim(name)
    return present


def _shut_down_in_its_grade(reason: EndReason, phase: Phase) -> bool:
    """The task's command had ended by then: a shutdown is not its answer any more, and no grade came of it."""
    return phase is Phase.GRADE and reason is EndReason.COMMAND_SHUT_DOWN


def after_failure(claimed: Claimed, named: Failure) -> EndReason | None:
    """Why the fork ends after this failure; None if it goes on with another machine."""
    spec, fork, attempt = claimed.run.spec, claimed.fork, claimed.attempt
    if fork.stop_asked is not None:
        return fork.stop_asked
    by_guest = named.task_may_have_caused and named.kind in GUEST_FAULTS
    # Out of memory, the task answers for victims among its own; one elsewhere is its environment's. And nobody inside
    # kills a machine from outside.
    by_guest = by_guest and not any(named.evidence.get(each) for each in NOT_INSIDE)
    if by_guest and spec.guest_faults is GuestFaults.TASK:
        return EndReason.GUEST_FAULT_BY_TASK
    replaceable = fork.role is Role.FORK and named.retryable
    if replaceable and (not attempt.intent or spec.rerun_started):
        return None if attempt.number <= spec.environment_retries else EndReason.ENVIRONMENT_FAILED
    return EndReason.ENVIRONMENT_FAILED


def conclude(
    ports: Ports,
    host: HostPorts,
    claimed: Claimed,
    reason: EndReason,
    *,
    result: Result | None = None,
    failed: Failure | None = None,
) -> None:
    """What a fork ends for is known: it is kept with its machine where its run asks for that, else both end."""
    if not _keep(ports, host, claimed, reason, result or Result(), failed):
        close(ports, host, claimed, reason, result=result, failed=failed)


def _keep(
    ports: Ports,
    host: HostPorts,
    claimed: Claimed,
    reason: EndReason,
    result: Result,
    failed: Failure | None,
) -> bool:
    if claimed.run.spec.keep_failed == 0 or reason not in KEEPABLE:
        return False
    if failed is not None and failed.kind is FailureKind.SNAPSHOT_CORRUPT:
        return False  # what can be seen in a machine of changed bytes shows nothing
    if not answers(host, claimed.attempt.attempt_id):
        return False  # there is nothing that could be looked at
    timed = _timed(result, claimed, ports.clock.boot_ns())
    verdict = Verdict(reason, timed, failed, claimed.fork.checks)
    kept = patiently(ports, lambda: ports.attempts.keep(claimed, verdict))
    if kept and claimed.fork.state in COMING_UP:
        ports.bells.fork(host.host_id)
    return kept


def close(
    ports: Ports,
    host: HostPorts,
    claimed: Claimed,
    then: EndReason | None,
    *,
    result: Result | None = None,
    failed: Failure | None = None,
    more_forks: tuple[Fork, ...] = (),
) -> Closed:
    """End the machine, then the attempt: the meter closes when the process is known to be gone.

    The database may be away just then, and nobody could say later why the machine was ended: it is waited for.
    """
    name = claimed.attempt.attempt_id
    still_held(ports, claimed)
    death = host.machines.kill(name)
    host.guest.close(name)
    gone_ns = _gone_at(ports, death)
    closing = Closing(
        closed_boot_ns=gone_ns,
        then=then,
        result=_timed(result or Result(), claimed, gone_ns),
        failure=failed,
        checks=claimed.fork.checks,
        late_ns=death.late_ns if death else 0,
        boot_id=_boot_of(ports, death),
        console=host.machines.console_tail(name),
    )
    closed = patiently(ports, lambda: ports.attempts.close(claimed, closing, more_forks))
    if death is not None and death.cause is DeathCause.DEADLINE:
        ports.measures.took(Step.LATE, death.late_ns)
    host.machines.forget(name)
    if claimed.fork.state in COMING_UP:
        ports.bells.fork(host.host_id)
    ring_after(ports, closed)
    return closed


def ring_after(ports: Ports, closed: Closed) -> None:
    """The bells that follow a closing: callers wait; room is free, and whoever gives it out settles the run first."""
    for exec_id in closed.lost_exec_ids:
        ports.bells.woken(exec_id)
    ports.bells.place()


def _timed(result: Result, claimed: Claimed, gone_ns: int) -> Result:
    """Where no command's own end was measured (lost, capped, released): the time from hand-over to the end."""
    ready_ns = claimed.attempt.ready_boot_ns
    if result.duration_ns or ready_ns is None:
        return result
    return replace(result, duration_ns=max(0, gone_ns - ready_ns))


def _boot_of(ports: Ports, death: Death | None) -> str | None:
    """The boot that `_gone_at` was read in; a keeper's own reading is of its machine's boot, whenever it is found."""
    witnessed = death is not None and death.cause is not DeathCause.KEEPER_LOST
    return None if witnessed else ports.clock.boot_id()


def _gone_at(ports: Ports, death: Death | None) -> int:
    return death.ended_boot_ns if death is not None else ports.clock.boot_ns()
