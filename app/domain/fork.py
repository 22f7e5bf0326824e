"""The states of a fork: which moves there are, why it may end, and the outcome that each reason means."""

from __future__ import annotations

from enum import StrEnum

from app.errors import Conflict


class ForkState(StrEnum):
    QUEUED = "queued"
    RESTORING = "restoring"
    CHECKING = "checking"
    READY = "ready"
    RUNNING = "running"
    ENDED = "ended"


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    RELEASED = "released"
    ENV_FAILED = "env_failed"
    CAPPED = "capped"
    CANCELLED = "cancelled"


class EndReason(StrEnum):
    COMMAND_PASSED = "command_passed"
    COMMAND_FAILED = "command_failed"
    COMMAND_TIMED_OUT = "command_timed_out"
    COMMAND_SHUT_DOWN = "command_shut_down"
    GUEST_FAULT_BY_TASK = "guest_fault_by_task"
    RELEASED_PASSED = "released_passed"
    RELEASED_FAILED = "released_failed"
    RELEASED = "released"
    HOLD_EXPIRED = "hold_expired"
    ENVIRONMENT_FAILED = "environment_failed"
    RUN_EXHAUSTED = "run_exhausted"
    NOT_RENEWED = "not_renewed"
    CANCELLED = "cancelled"
    STOPPED_BY_RULE = "stopped_by_rule"


# Every move that exists. A replacement goes back to QUEUED: the fork waits for another machine.
MOVES: dict[ForkState, frozenset[ForkState]] = {
    ForkState.QUEUED: frozenset({ForkState.RESTORING, ForkState.ENDED}),
    ForkState.RESTORING: frozenset({ForkState.CHECKING, ForkState.QUEUED, ForkState.ENDED}),
    ForkState.CHECKING: frozenset({ForkState.READY, ForkState.QUEUED, ForkState.ENDED}),
    ForkState.READY: frozenset({ForkState.RUNNING, ForkState.QUEUED, ForkState.ENDED}),
    ForkState.RUNNING: frozenset({ForkState.READY, ForkState.QUEUED, ForkState.ENDED}),
    ForkState.ENDED: frozenset(),
}

OUTCOMES: dict[EndReason, Outcome] = {
    EndReason.COMMAND_PASSED: Outcome.PASSED,
    EndReason.COMMAND_FAILED: Outcome.FAILED,
    EndReason.COMMAND_TIMED_OUT: Outcome.TIMED_OUT,
    EndReason.COMMAND_SHUT_DOWN: Outcome.FAILED,
    EndReason.GUEST_FAULT_BY_TASK: Outcome.FAILED,
    EndReason.RELEASED_PASSED: Outcome.PASSED,
    EndReason.RELEASED_FAILED: Outcome.FAILED,
    EndReason.RELEASED: Outcome.RELEASED,
    EndReason.HOLD_EXPIRED: Outcome.RELEASED,
    EndReason.ENVIRONMENT_FAILED: Outcome.ENV_FAILED,
    EndReason.RUN_EXHAUSTED: Outcome.CAPPED,
    EndReason.NOT_RENEWED: Outcome.CAPPED,
    EndReason.CANCELLED: Outcome.CANCELLED,
    EndReason.STOPPED_BY_RULE: Outcome.CANCELLED,
}

# What a fork can end for while its machine is still there to be looked at. Not a release: its caller is done with it.
KEEPABLE = frozenset(
    {
        EndReason.COMMAND_FAILED,
        EndReason.COMMAND_TIMED_OUT,
        EndReason.GUEST_FAULT_BY_TASK,
        EndReason.ENVIRONMENT_FAILED,
    }
)

# Only these may carry a reward; all other outcomes are masked.
GRADED = frozenset({Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.RELEASED})

REWARDS: dict[Outcome, float] = {
    Outcome.PASSED: 1.0,
    Outcome.FAILED: 0.0,
    Outcome.TIMED_OUT: 0.0,
}


def move(old: ForkState, new: ForkState) -> ForkState:
    """The new state, if the table has the move. Raises Conflict(bad_move) otherwise."""
    if new not in MOVES[old]:
        raise Conflict("bad_move", f"a fork cannot go from {old.value} to {new.value}")
    return new


def reward(outcome: Outcome, given: float | None) -> float | None:
    """A grade's or a release's own reward if there is one, else what the outcome means; null is never zero."""
    if outcome not in GRADED:
        return None
    return given if given is not None else REWARDS.get(outcome)
