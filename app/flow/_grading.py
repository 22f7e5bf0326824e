"""A grade ended: what it says of its fork, or why it says nothing. A grader that fails is never a reward of 0.

The order is that of evidence: an exit code by which the grade reports a fault, and what of the environment spoilt it;
then how it ended; then what it wrote. What it wrote is read and saved before its machine is ended.
"""

from __future__ import annotations

from dataclasses import replace

from app.domain.failure import Phase
from app.domain.fork import EndReason
from app.domain.grade import RESULT_LIMIT_BYTES, Grade, Told, crash_of, grade_of, no_grade, parse
from app.domain.machine import CommandEnd
from app.domain.measure import Step
from app.domain.run import Claimed, Exec, ExecPurpose, ExecResult, Result
from app.errors import BadRequest, EnvironmentFault, FailureKind, TooLarge
from app.flow._attribution import environment_fault, evidence_of
from app.flow._claimed import conclude, fail, own_exec_id, patiently
from app.flow._results import exec_result, note_end
from app.ports import HostPorts, Ports

SHOWN_BYTES = 500


def settle_grade(
    ports: Ports, host: HostPorts, claimed: Claimed, ended: Exec, end: CommandEnd
) -> None:
    """Save what the grade says and end the fork by it; a failed grade ends it `env_failed`, in its phase."""
    found = _found(host, claimed, ended, end)
    if isinstance(found, EnvironmentFault):
        result = replace(task_result(ports, claimed), grade=no_grade(end, found.message))
        note_end(ports, claimed, ended, end)
        fail(ports, host, claimed, found, Phase.GRADE, result=result)
        return
    kept = replace(exec_result(ports, end), grade=found)
    if ports.execs.finish(claimed, replace(ended, result=kept)):
        ports.measures.took(Step.EXEC, end.duration_ns)
    after_grade(ports, host, claimed, kept)


def after_grade(ports: Ports, host: HostPorts, claimed: Claimed, kept: ExecResult) -> None:
    """End a fork by its grade, which is saved: passed by exit code 0, else failed, with the reward that was told."""
    passed = kept.exit_code == 0
    reward = None if kept.grade is None else kept.grade.reward
    result = replace(task_result(ports, claimed), reward=reward, grade=kept.grade)
    reason = EndReason.COMMAND_PASSED if passed else EndReason.COMMAND_FAILED
    conclude(ports, host, claimed, reason, result=result)


def task_result(ports: Ports, claimed: Claimed) -> Result:
    """What the graded command itself left behind, as it was saved before its grade began."""
    exec_id = own_exec_id(ExecPurpose.TASK, claimed.attempt.attempt_id)
    task = patiently(ports, lambda: ports.execs.find(exec_id))
    return Result() if task is None or task.result is None else task.result.reported()


def grade_began(ports: Ports, claimed: Claimed) -> bool:
    """Whether the grade's intent is committed: what befalls the machine from then on befalls the grade."""
    if claimed.run.spec.grade is None:
        return False
    exec_id = own_exec_id(ExecPurpose.GRADE, claimed.attempt.attempt_id)
    return patiently(ports, lambda: ports.execs.find(exec_id)) is not None


def _found(
    host: HostPorts, claimed: Claimed, ended: Exec, end: CommandEnd
) -> Grade | EnvironmentFault:
    spoilt = environment_fault(host, ended, end)
    if spoilt is not None:
        return spoilt
    if end.victim_of_own_memory and end.exit_code != 0:
        # The victim is none of the task's own processes: whoever used the memory up, it is no zero of the task's.
        why = "the machine's memory ran out, and a process of the grade was killed"
        return EnvironmentFault(
            FailureKind.GUEST_OUT_OF_MEMORY, why, **evidence_of(end), victim_elsewhere=True
        )
    crash = crash_of(end)
    if crash is not None:
        return EnvironmentFault(FailureKind.OWN_TEST_FAILED, crash, **evidence_of(end))
    told = _told(host, claimed, ended, end)
    if isinstance(told, EnvironmentFault):
        return told
    if told is None and ended.spec is not None and ended.spec.result_required:
        why = "the grade ended without writing its result"
        return EnvironmentFault(FailureKind.OWN_TEST_FAILED, why, **evidence_of(end))
    if told is not None and told.reason is not None:
        return EnvironmentFault(
            FailureKind.REPORTED_BY_COMMAND, told.reason, **evidence_of(end), reason=told.reason
        )
    return grade_of(end, told)


def _told(
    host: HostPorts, claimed: Claimed, ended: Exec, end: CommandEnd
) -> Told | EnvironmentFault | None:
    """What the result file says; None if there is none, a fault if it cannot be taken for a result."""
    file = b""
    try:
        read = host.guest.result(claimed.attempt.attempt_id, ended.exec_id, RESULT_LIMIT_BYTES)
        if read is None:
            return None
        file = read
        return parse(file)
    except (BadRequest, TooLarge) as bad:
        return EnvironmentFault(
            FailureKind.OWN_TEST_FAILED,
            f"the grade's result is no result: {bad.message}",
            **evidence_of(end),
            result=file[:SHOWN_BYTES].decode("utf-8", "replace").replace("\0", "\ufffd"),
        )
