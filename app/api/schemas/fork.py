"""Held forks: how one stands, what its commands gave, how it was handed back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.api.schemas.base import Answer, Body
from app.api.schemas.run import Failure, Outcome


class Fork(Answer):
    fork_id: str
    run_id: str
    index: int
    key: str | None
    snapshot: str
    state: Literal["queued", "restoring", "checking", "ready", "running", "ended"]
    outcome: Outcome | None
    reason: str | None
    host: str | None
    attempts: int
    failure: Failure | None


class Forks(Answer):
    forks: list[Fork]
    next_cursor: str | None


class ExecPending(Answer):
    """The command has not ended; ask again by its id."""

    exec_id: str
    state: Literal["queued", "running"]


class ExecResult(Answer):
    """A command's end. Past its own limit it is `timed_out`, with no exit code and its output kept."""

    exec_id: str
    exit_code: int | None
    timed_out: bool
    signal: int | None
    stdout: str
    stderr: str
    truncated: bool
    seconds: float


class ReleaseBody(Body):
    """A held fork's grade, or none; `reward` says more than passed or failed can."""

    passed: bool | None = None
    reward: Annotated[float, Field(ge=-1e9, le=1e9)] | None = None


class Released(Answer):
    fork_id: str
    outcome: Outcome
    reward: float | None
    reward_valid: bool
    reason: str


class Uploaded(Answer):
    bytes: int
    sha256: str
