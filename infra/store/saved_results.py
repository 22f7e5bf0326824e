"""What a command's saved result makes of its fork, where nobody is left to say so."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from app.domain.fork import EndReason
from app.domain.run import Attempt, ExecPurpose, ExecResult, ExecState, Result, Run
from infra.store.rows import find_exec


def decided(at: Connection, run: Run, attempt: Attempt) -> tuple[EndReason, Result] | None:
    """Why the fork ends, and with what: by its grade where it has one, else by its command. None if nothing is saved.

    A worker that saved a result and died before it closed the attempt has left nothing undecided.
    """
    task = _saved(at, ExecPurpose.TASK, attempt)
    if run.spec.exec is None or task is None:
        return None
    if run.spec.grade is None:
        return _reason(task), task.reported()
    grade = _saved(at, ExecPurpose.GRADE, attempt)
    if grade is None or grade.grade is None:
        return None
    return _reason(grade), replace(task.reported(), reward=grade.grade.reward, grade=grade.grade)


def _saved(at: Connection, purpose: ExecPurpose, attempt: Attempt) -> ExecResult | None:
    row = find_exec(at, f"{purpose.value}_{attempt.attempt_id}")
    return row.result if row is not None and row.state is ExecState.ENDED else None


def _reason(result: ExecResult) -> EndReason:
    if result.timed_out:
        return EndReason.COMMAND_TIMED_OUT
    return EndReason.COMMAND_PASSED if result.exit_code == 0 else EndReason.COMMAND_FAILED
