"""One fork looked into: its page, its output, its console, and another fork like it."""

from __future__ import annotations

from typing import Literal, TypedDict

from promigence.types.held import Fork
from promigence.types.runs import Check, Failure, Quote
from promigence.types.terms import HeldExec

CommandState = Literal["queued", "running", "ended", "lost"]
Purpose = Literal["test", "task", "grade", "held", "upload", "download"]


class ForkMachine(TypedDict):
    """One machine that a fork had (an attempt); `lease_left_seconds` is None when it has ended."""

    attempt_id: str
    attempt: int
    host: str
    opened_at: str
    ready_at: str | None
    ended_at: str | None
    lease_seconds: float
    lease_left_seconds: float | None
    cost_usd: float
    failure: Failure | None


class ForkCommand(TypedDict):
    """One command of a fork, or one file moved (`path`); `command` can be given to `forks.exec` as it is."""

    exec_id: str
    attempt_id: str
    purpose: Purpose
    state: CommandState
    command: HeldExec | None
    path: str | None
    exit_code: int | None
    signal: int | None
    timed_out: bool
    seconds: float | None
    truncated: bool


class ForkPage(Fork):
    """A fork whole: its entry of the report, what it was given, its machines, its newest 200 commands."""

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
    commands: list[ForkCommand]


class Logs(TypedDict):
    """A command's output. `truncated`: more was printed than was kept. `next` is the byte behind what is here.

    `text` is None where the bytes went into a local file.
    """

    fork_id: str
    exec_id: str
    purpose: Purpose
    stream: Literal["stdout", "stderr"]
    state: CommandState
    truncated: bool
    bytes: int
    next: int
    text: str | None


class Console(TypedDict):
    """The tail of a guest's console: of the machine that lives (`live`), else of the last that ended."""

    fork_id: str
    attempt_id: str
    live: bool
    text: str


class Reproduction(TypedDict):
    """A held fork like another one. `original` is the command that the other is about, with how it ended there."""

    fork_id: str
    run_id: str
    reproduces: str
    snapshot: str
    quote: Quote
    original: ForkCommand | None
