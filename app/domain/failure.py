"""An environment failure: its kind, where it happened, what was seen, and whose doing it may have been."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from app.errors import EnvironmentFault, FailureKind


class Phase(StrEnum):
    PLACE = "place"
    RESTORE = "restore"
    BARRIER = "barrier"
    CONTRACT = "contract"
    TEST = "test"
    EXEC = "exec"
    GRADE = "grade"
    COLLECT = "collect"


# What a guest that is root can bring about by itself once a command of the task may have started.
GUEST_FAULTS = frozenset(
    {
        FailureKind.GUEST_LOST,
        FailureKind.GUEST_HUNG,
        FailureKind.GUEST_PANICKED,
        FailureKind.GUEST_OUT_OF_MEMORY,
    }
)

# How a grader fails that a task which is root may have spoilt: it shares the machine with what it grades. It stays an
# environment failure whatever `guest_faults` says, for a grader of its own accord fails in the same ways.
GRADER_FAULTS = frozenset({FailureKind.OWN_TEST_FAILED, FailureKind.EXEC_NOT_STARTED})

# Another fork of the same snapshot would fail in the same way.
NOT_RETRYABLE = frozenset({FailureKind.SNAPSHOT_CORRUPT, FailureKind.REPORTED_BY_COMMAND})

# The host, not the machine, is at fault: a replacement goes elsewhere.
HOST_FAULTS = frozenset(
    {
        FailureKind.HOST_STALLED,
        FailureKind.HOST_OUT_OF_MEMORY,
        FailureKind.HOST_DISK_FULL,
        FailureKind.HOST_LOST,
        FailureKind.RESTORE_FAILED,
        FailureKind.SNAPSHOT_UNAVAILABLE,
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt's reason, with the facts that were seen (never a guess from log text)."""

    kind: FailureKind
    phase: Phase
    message: str
    retryable: bool
    task_may_have_caused: bool
    evidence: dict[str, object] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """The JSON shape of the contract."""
        return {
            "kind": self.kind.value,
            "phase": self.phase.value,
            "code": self.kind.value,
            "message": self.message,
            "retryable": self.retryable,
            "task_may_have_caused": self.task_may_have_caused,
            "evidence": self.evidence,
        }


def failure(
    fault: EnvironmentFault, phase: Phase, *, command_may_have_started: bool = False
) -> Failure:
    """Name a fault: the phase it was met in and whether the task's command may have caused it."""
    by_guest = GUEST_FAULTS | GRADER_FAULTS if phase is Phase.GRADE else GUEST_FAULTS
    return Failure(
        kind=fault.kind,
        phase=phase,
        message=fault.message,
        retryable=fault.kind not in NOT_RETRYABLE,
        task_may_have_caused=command_may_have_started and fault.kind in by_guest,
        evidence=dict(fault.evidence),
    )
