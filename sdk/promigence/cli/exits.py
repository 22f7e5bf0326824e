"""What the exit code of a command says.

    0    all is well
    1    a task failed: a fork failed or timed out, or a command in a held fork did
    2    bad usage: an option, a definition, a name or a setting that will not do (the server's 400 and 404 too)
    3    an environment failed: a fork's, or a snapshot's that was refused
    4    the cap stopped it, or the project's month has no money left for it
    5    anything else: no server, no right, a wait that timed out, a run or build that was cancelled
    130  Ctrl-C: the command let go; what it followed goes on

A run of many forks may be several of these at once. Then the first of 3, 4, 1, 5 that applies is told: numbers with
a broken environment or without money in them are to be looked at before anybody trains on the rest.
"""

from __future__ import annotations

from enum import IntEnum

from promigence.errors import (
    BadRequest,
    BuildFailed,
    ConfigError,
    EnvironmentFailure,
    NotFound,
    PromigenceError,
)
from promigence.types import ExecResult, Report, Totals


class ExitCode(IntEnum):
    OK = 0
    TASK_FAILED = 1
    BAD_USAGE = 2
    ENVIRONMENT_FAILED = 3
    CAPPED = 4
    ERROR = 5
    INTERRUPTED = 130


def code_of_totals(totals: Totals) -> ExitCode:
    """What a run's outcomes so far amount to."""
    if totals["env_failed"]:
        return ExitCode.ENVIRONMENT_FAILED
    if totals["capped"]:
        return ExitCode.CAPPED
    if totals["failed"] or totals["timed_out"]:
        return ExitCode.TASK_FAILED
    return ExitCode.ERROR if totals["cancelled"] else ExitCode.OK


def code_of_report(report: Report) -> ExitCode:
    return code_of_totals(report["totals"])


def code_of_exec(result: ExecResult) -> ExitCode:
    return ExitCode.OK if result["exit_code"] == 0 else ExitCode.TASK_FAILED


def code_of_error(error: PromigenceError) -> ExitCode:
    if isinstance(error, EnvironmentFailure):
        return ExitCode.ENVIRONMENT_FAILED
    if isinstance(error, BuildFailed):
        return _code_of_build(error)
    if error.code == "project_budget_exhausted":
        return ExitCode.CAPPED
    if isinstance(error, BadRequest | ConfigError | NotFound):
        return ExitCode.BAD_USAGE
    return ExitCode.ERROR


def _code_of_build(error: BuildFailed) -> ExitCode:
    if error.details.get("state") == "cancelled":
        return ExitCode.ERROR
    return ExitCode.CAPPED if error.code == "build_capped" else ExitCode.ENVIRONMENT_FAILED
