"""What a process measures of its own work, in nanoseconds."""

from __future__ import annotations

from enum import StrEnum


class Step(StrEnum):
    """What took its time.

    `READY`: from the claim of a machine to its hand-over. `EXEC_START`: from asking the guest to its answer that a
    command runs. `EXEC`: a command's own time. `LATE`: how long after its lease a machine was gone that its lease
    ended.
    """

    RESTORE = "restore"
    READY = "ready"
    EXEC_START = "exec_start"
    EXEC = "exec"
    LATE = "late"
    BILLING_TICK = "billing_tick"
