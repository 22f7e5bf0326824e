"""Something ended on a machine, a command or the machine itself: learn what, and take the fork one step on."""

from __future__ import annotations

from dataclasses import replace

from app.domain.failure import Phase
from app.domain.fork import EndReason, ForkState
from app.domain.machine import CommandEnd
from app.domain.measure import Step
from app.domain.run import (
    Attempt,
    Claimed,
    Exec,
    ExecPurpose,
    ExecResult,
    ExecState,
    Role,
)
from app.errors import EnvironmentFault, FailureKind
from app.flow._attribution import environment_fault, evidence_of
from app.flow._broken import CHANNEL_FAULTS, answers, full_disk, is_being_ended
from app.flow._claimed import (
    conclude,
    fail,
    failing,
    hand_over,
    late_results_dropped,
    launch,
    own_exec_id,
)
from app.flow._grading import after_grade, grade_began, settle_grade, task_result
from app.flow._results import exec_result, note_end, settle_held, start_unseen
from app.ports import HostPorts, Ports

# Commands whose end takes the fork one step on: after one, everything read before is out of date.
DECIDING = frozenset({ExecPurpose.TEST, ExecPurpose.TASK, ExecPurpose.GRADE})
PHASES = {ForkState.RESTORING: Phase.BARRIER, ForkState.CHECKING: Phase.TEST}


def collect(ports: Ports, host: HostPorts, attempt_id: str) -> None:
    """Act on whatever ended on this machine. Twice is safe: every step is fenced, or is taken by one caller only."""
    claimed = ports.attempts.get(attempt_id)
    if claimed is None or not _ours(host, claimed.attempt):
        return
    if claimed.fork.role is Role.TEMPLATE:
        return  # its build waits for its commands itself
    with late_results_dropped():
        try:
            _collect_commands(ports, host, claimed)
        except EnvironmentFault as fault:
            # A channel broke. First learn whether the process lives, and whether the guest answers; then name it.
            if fault.kind in CHANNEL_FAULTS and answers(host, attempt_id):
                return
            _fail(ports, host, claimed, fault)


def _ours(host: HostPorts, attempt: Attempt) -> bool:
    return attempt.claim == host.claim and attempt.closed_boot_ns is None


def _collect_commands(ports: Ports, host: HostPorts, claimed: Claimed) -> None:
    full = full_disk(host, claimed.attempt.attempt_id)
    if full is not None:
        raise full
    unfinished = ports.execs.unfinished(claimed.attempt.attempt_id)
    running = [each for each in unfinished if each.state is ExecState.RUNNING]
    if not running and _go_on_from_result(ports, host, claimed):
        return
    if is_being_ended(ports, host, claimed.attempt):
        return
    for each in running:
        end = _end_of(ports, host, claimed, each)
        if end is None:
            continue
        if _is_decided(claimed, each):
            ports.execs.finish(claimed, replace(each, result=exec_result(ports, end)))
            continue
        _settle(ports, host, claimed, each, end)
        if each.purpose in DECIDING:
            return
    death = host.machines.death(claimed.attempt.attempt_id)
    if death is not None:
        raise EnvironmentFault(FailureKind.GUEST_LOST, "the machine's process ended")
    if not running and _awaits_its_command(claimed):
        _resume(ports, host, claimed)


def _is_decided(claimed: Claimed, each: Exec) -> bool:
    """Its end decides nothing any more: the fork is kept, or a worker died between a hand-over and this note of it."""
    if each.purpose is ExecPurpose.TEST:
        return claimed.fork.state is not ForkState.CHECKING
    return each.purpose in DECIDING and claimed.fork.kept is not None


def _end_of(ports: Ports, host: HostPorts, claimed: Claimed, each: Exec) -> CommandEnd | None:
    """A command's end, None while it runs. What was intended and never reached the guest is started now.

    A file that is being moved is no command of the guest's: whoever moves it says how that ended.
    """
    if each.spec is None:
        return None
    try:
        return host.guest.end(claimed.attempt.attempt_id, each.exec_id)
    except EnvironmentFault as fault:
        if fault.kind is not FailureKind.EXEC_NOT_STARTED:
            raise
    start_unseen(ports, host, claimed, each, each.spec)
    return None


def _go_on_from_result(ports: Ports, host: HostPorts, claimed: Claimed) -> bool:
    """A deciding command whose result is in its row, and nothing followed: whoever saved it was interrupted then."""
    if claimed.fork.state is not ForkState.RUNNING or claimed.run.spec.exec is None:
        return False
    if claimed.fork.kept is not None:
        return False
    for purpose, go_on in ((ExecPurpose.GRADE, after_grade), (ExecPurpose.TASK, _after_task)):
        decided = ports.execs.find(own_exec_id(purpose, claimed.attempt.attempt_id))
        if decided is not None and decided.result is not None:
            go_on(ports, host, claimed, decided.result)
            return True
    return False


def _awaits_its_command(claimed: Claimed) -> bool:
    ready = claimed.fork.state is ForkState.READY and claimed.fork.kept is None
    return ready and claimed.run.spec.exec is not None


def _resume(ports: Ports, host: HostPorts, claimed: Claimed) -> None:
    """A worker died between hand-over and intent: nothing has started, so it starts now."""
    if claimed.run.spec.exec is not None:
        with failing(ports, host, claimed, Phase.EXEC):
            launch(ports, host, claimed, ExecPurpose.TASK, claimed.run.spec.exec)


def _settle(ports: Ports, host: HostPorts, claimed: Claimed, ended: Exec, end: CommandEnd) -> None:
    match ended.purpose:
        case ExecPurpose.TEST:
            _settle_test(ports, host, claimed, ended, end)
        case ExecPurpose.TASK:
            _settle_task(ports, host, claimed, ended, end)
        case ExecPurpose.GRADE:
            settle_grade(ports, host, claimed, ended, end)
        case _:
            settle_held(ports, claimed, ended, end)


def _settle_test(
    ports: Ports, host: HostPorts, claimed: Claimed, ended: Exec, end: CommandEnd
) -> None:
    if end.exit_code == 0 and not end.timed_out:
        hand_over(ports, host, claimed, replace(ended, result=exec_result(ports, end)))
        return
    fault = EnvironmentFault(
        FailureKind.OWN_TEST_FAILED,
        "the snapshot's own test did not pass in this fork",
        **evidence_of(end),
    )
    note_end(ports, claimed, ended, end)
    fail(ports, host, claimed, fault, Phase.TEST)


def _settle_task(
    ports: Ports, host: HostPorts, claimed: Claimed, ended: Exec, end: CommandEnd
) -> None:
    fault = environment_fault(host, ended, end)
    if fault is not None:
        note_end(ports, claimed, ended, end)
        fail(ports, host, claimed, fault, Phase.EXEC)
        return
    _after_task(ports, host, claimed, _saved(ports, claimed, ended, end))


def _after_task(ports: Ports, host: HostPorts, claimed: Claimed, result: ExecResult) -> None:
    grade = claimed.run.spec.grade
    if grade is None:
        conclude(ports, host, claimed, _reason(result), result=result.reported())
        return
    with failing(ports, host, claimed, Phase.GRADE):
        launch(ports, host, claimed, ExecPurpose.GRADE, grade)


def _saved(ports: Ports, claimed: Claimed, ended: Exec, end: CommandEnd) -> ExecResult:
    """Save a result before its machine is ended: it outlives whatever happens between the two."""
    kept = exec_result(ports, end)
    if ports.execs.finish(claimed, replace(ended, result=kept)):
        ports.measures.took(Step.EXEC, end.duration_ns)
    return kept


def _reason(result: ExecResult) -> EndReason:
    if result.timed_out:
        return EndReason.COMMAND_TIMED_OUT
    return EndReason.COMMAND_PASSED if result.exit_code == 0 else EndReason.COMMAND_FAILED


def _fail(ports: Ports, host: HostPorts, claimed: Claimed, fault: EnvironmentFault) -> None:
    if claimed.fork.state in PHASES:
        fail(ports, host, claimed, fault, PHASES[claimed.fork.state])
    elif grade_began(ports, claimed):
        fail(ports, host, claimed, fault, Phase.GRADE, result=task_result(ports, claimed))
    else:
        fail(ports, host, claimed, fault, Phase.EXEC)
