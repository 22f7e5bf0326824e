"""One fork: how it stands, its machines and commands, how it was handed back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.api.schemas.base import Answer, Body, Instant
from app.api.schemas.run import Check, Failure, Kept, Outcome


class Fork(Answer):
    """A fork as it stands. `draining`: its host takes no more forks; the cloud takes it back at `gone_at`, if ever."""

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
    kept: Kept | None = None
    draining: bool = False
    gone_at: Instant | None = None


class ForkMachine(Answer):
    """One machine that a fork had (an attempt). `lease_left_seconds` is null when it has ended."""

    attempt_id: str
    attempt: int
    host: str
    opened_at: Instant
    ready_at: Instant | None
    ended_at: Instant | None
    lease_seconds: float
    lease_left_seconds: float | None
    cost_usd: float
    failure: Failure | None


class AskedExec(Answer):
    """A command as it was asked for; what it was not given is left out."""

    sh: str = ""
    argv: list[str] = Field(default_factory=list)
    cwd: str = ""
    env: dict[str, str] = Field(default_factory=dict)
    user: str = ""
    timeout_seconds: float


class ForkExec(Answer):
    """One command of a fork, or one file moved (`path`). `command` has the shape in which it is asked for again."""

    exec_id: str
    attempt_id: str
    purpose: Literal["test", "task", "grade", "held", "upload", "download"]
    state: Literal["queued", "running", "ended", "lost"]
    command: AskedExec | None
    path: str | None
    exit_code: int | None
    signal: int | None
    timed_out: bool
    seconds: float | None
    truncated: bool


class ForkPage(Fork):
    """A fork whole: its entry of the report, what it was given, its machines, its newest commands."""

    reward: float | None
    reward_valid: bool
    exit_code: int | None
    signal: int | None
    stdout_tail: str
    stderr_tail: str
    truncated: bool
    seconds: float
    cost_usd: float
    checks: list[Check]
    env: dict[str, str]
    egress: list[str]
    machines: list[ForkMachine]
    commands: list[ForkExec]


class Console(Answer):
    """The tail of a guest's console: of the machine that lives (`live`), else of the last that ended."""

    fork_id: str
    attempt_id: str
    live: bool
    text: str


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
