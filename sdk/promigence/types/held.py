"""Held forks and their commands."""

from __future__ import annotations

from typing import Literal, TypedDict

from promigence.types.runs import Failure, Kept, Outcome

ForkState = Literal["queued", "restoring", "checking", "ready", "running", "ended"]


class Fork(TypedDict):
    """A fork as it stands; `outcome` and `reason` are None until it has ended.

    `draining`: its host takes no more forks, and the cloud takes it back at `gone_at`, if ever.
    """

    fork_id: str
    run_id: str
    index: int
    key: str | None
    snapshot: str
    state: ForkState
    outcome: Outcome | None
    reason: str | None
    host: str | None
    attempts: int
    failure: Failure | None
    kept: Kept | None
    draining: bool
    gone_at: str | None


class ExecResult(TypedDict):
    """A command's end. Past its own limit it is `timed_out`, with no exit code and its output kept."""

    exec_id: str
    exit_code: int | None
    timed_out: bool
    signal: int | None
    stdout: str
    stderr: str
    truncated: bool
    seconds: float


class Released(TypedDict):
    fork_id: str
    outcome: Outcome
    reward: float | None
    reward_valid: bool
    reason: str


class Uploaded(TypedDict):
    bytes: int
    sha256: str


class Downloaded(TypedDict):
    path: str
    bytes: int
