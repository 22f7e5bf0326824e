"""A command as it comes in: by `sh` or by `argv`, with where, as whom, for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from app.api.schemas.base import Body, Env, GuestPath, Id, Seconds, Text, ns_of
from app.domain.run import ExecSpec

# What Linux takes as one argument; argv and environment together stay below it too.
MAX_COMMAND_BYTES = 128 * 1024 - 1

User = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")]
ExitCode = Annotated[int, Field(ge=1, le=255)]


class Command(Body):
    """`sh` is run by `/bin/sh -c`; `argv` as it is. Exactly one of the two."""

    sh: Text | None = None
    argv: Annotated[list[Text], Field(min_length=1, max_length=1024)] | None = None
    cwd: GuestPath | None = None
    env: Env = Field(default_factory=dict)
    user: User | None = None
    timeout_seconds: Seconds = 3600.0

    @model_validator(mode="after")
    def _one_and_not_too_long(self) -> Self:
        if (self.sh is None) == (self.argv is None):
            raise ValueError("give exactly one of sh and argv")
        if not any(self._argv):
            raise ValueError("the command is empty")
        words = (*self._argv, *self.env, *self.env.values())
        if sum(len(word.encode()) for word in words) > MAX_COMMAND_BYTES:
            raise ValueError(f"command and env are over {MAX_COMMAND_BYTES} bytes; upload a file")
        return self

    @property
    def _argv(self) -> tuple[str, ...]:
        return ("/bin/sh", "-c", self.sh) if self.sh is not None else tuple(self.argv or ())

    def to_spec(self) -> ExecSpec:
        return ExecSpec(
            argv=self._argv,
            cwd=self.cwd,
            env=tuple(sorted(self.env.items())),
            user=self.user,
            timeout_ns=ns_of(self.timeout_seconds),
        )


class RolloutCommand(Command):
    """A run's command; by `environment_exit_codes` it reports a fault of its own infrastructure."""

    environment_exit_codes: Annotated[list[ExitCode], Field(max_length=255)] = Field(
        default_factory=list
    )

    def to_spec(self) -> ExecSpec:
        codes = tuple(sorted(set(self.environment_exit_codes)))
        return replace(super().to_spec(), environment_exit_codes=codes)


class GradeCommand(RolloutCommand):
    """A grade; it may write its reward to the file that `PROMIGENCE_RESULT` names in its environment.

    `result_required`: without that file it has crashed, whatever its exit code (a Python traceback ends with 1, too).
    """

    result_required: bool = False

    def to_spec(self) -> ExecSpec:
        return replace(super().to_spec(), result_required=self.result_required)


class HeldCommand(Command):
    """A command for a held fork; a given `exec_id` finds it again after a crash."""

    exec_id: Id | None = None


class OwnTest(Command):
    """A snapshot's own test: how long it may take and how often it must pass, each time in a fresh fork."""

    timeout_seconds: Seconds = 300.0
    repeat: Annotated[int, Field(ge=1, le=20)] = 3
