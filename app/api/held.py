"""Commands and files of held forks: found by the caller's id, waited for without a thread, told in the end."""

from __future__ import annotations

import hashlib

from app.api.context import Context
from app.api.waiting import until
from app.domain.run import Exec, ExecState, Fork
from app.errors import BadRequest, Conflict, NotFound, PromigenceError, TooLarge, Unavailable

# What a guest refuses by these codes is told with their status; every other refusal is a bad request.
_REFUSALS: dict[str, type[PromigenceError]] = {
    "not_found": NotFound,
    "too_large": TooLarge,
    "unavailable": Unavailable,
}


def row_id(fork_id: str, exec_id: str) -> str:
    """The row of a caller's id: callers name commands within a fork, rows are named for all forks of all projects."""
    digest = hashlib.sha256(f"{fork_id}\n{exec_id}".encode())
    return f"exec_{digest.hexdigest()[:32]}"


async def settled(context: Context, asked: Exec, wait_s: float) -> Exec:
    """The row once its command has ended, or as it is when `wait_s` are over.

    Raises Conflict(environment_failure) when the machine was lost, Conflict(fork_ended) when the fork was stopped,
    BadRequest, NotFound, TooLarge or Unavailable for what the guest or its host refused.
    """
    execs = context.ports.execs

    async def row() -> Exec:
        return await context.run(execs.get, asked.project_id, asked.fork_id, asked.exec_id)

    seen = await until(context.wakes, asked.exec_id, row, _is_over, wait_s)
    if seen.state is ExecState.LOST:
        raise await _lost(context, seen)
    if seen.result is not None and seen.result.error is not None:
        code, message = seen.result.error
        raise _REFUSALS.get(code, BadRequest)(code, message)
    return seen


def _is_over(seen: Exec) -> bool:
    return seen.state in (ExecState.ENDED, ExecState.LOST)


async def _lost(context: Context, seen: Exec) -> Conflict:
    if seen.failure is not None:
        return Conflict(
            "environment_failure",
            f"the machine of {seen.fork_id} is lost: {seen.failure.message}",
            failure=seen.failure.as_dict(),
            fork_id=seen.fork_id,
        )
    fork = await context.run(context.ports.runs.fork, seen.project_id, seen.fork_id)
    return _ended(fork)


def _ended(fork: Fork) -> Conflict:
    reason = fork.reason or fork.stop_asked
    return Conflict(
        "fork_ended",
        f"{fork.fork_id} was ended ({reason.value if reason else 'unknown'}); its commands with it",
        fork_id=fork.fork_id,
        outcome=fork.outcome.value if fork.outcome else None,
        reason=reason.value if reason else None,
    )
