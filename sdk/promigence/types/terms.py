"""What goes in: commands, steps, definitions."""

from __future__ import annotations

from typing import Literal, TypedDict


class HeldExec(TypedDict, total=False):
    """A command for a held fork: `sh` (run by `/bin/sh -c`) or `argv`, and optionally the rest.

    `timeout_seconds` is 3600 by default.
    """

    sh: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    user: str
    timeout_seconds: float


class Exec(HeldExec, total=False):
    """A run's command; by `environment_exit_codes` it reports a fault of its own infrastructure."""

    environment_exit_codes: list[int]


class GradeExec(Exec, total=False):
    """A second command, which decides the outcome. To the file that `PROMIGENCE_RESULT` names it may write
    `{"reward": 0.7}`, or `{"valid": false, "reason": "..."}`.

    `result_required`: without that file it has crashed, whatever its exit code.
    """

    result_required: bool


class _GroupBase(TypedDict):
    snapshot: str
    count: int


class Group(_GroupBase, total=False):
    """Forks of one snapshot that belong together, such as the samples of one prompt."""

    key: str
    env: dict[str, str]


class StopWhen(TypedDict):
    """When a run stops itself: so large a share of its forks ended `env_failed` (above 0, at most 1)."""

    env_failed_share: float


class QuoteTerms(TypedDict, total=False):
    """What a step can be given, apart from its snapshot. What is left out takes the server's default.

    `count` goes with a name, not with groups. `exec` or `hold_seconds`, not both. Of the forks that fail, `keep_failed`
    at a time keep their machines to be looked at.
    """

    count: int
    spend_cap: float
    verify_each: bool
    exec: Exec
    grade: GradeExec
    hold_seconds: float
    environment_retries: int
    rerun_started: bool
    guest_faults: Literal["environment", "task"]
    egress: list[str]
    labels: dict[str, str]
    queue_timeout_seconds: float
    keep_failed: int
    stop_when: StopWhen
    idempotency_key: str


class StartTerms(QuoteTerms, total=False):
    """As `QuoteTerms`; with `quote_id` the run is held to that quote (`quote_mismatch`, `quote_expired`)."""

    quote_id: str


class Shape(TypedDict):
    vcpus: int
    memory_mib: int
    disk_gib: int


class OwnTest(TypedDict, total=False):
    """A snapshot's own test: shows that the environment works, not that the task is solved."""

    sh: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    user: str
    timeout_seconds: float
    repeat: int


class _DefinitionBase(TypedDict):
    name: str
    image: str


class Definition(_DefinitionBase, total=False):
    """What a snapshot is made of; the same keys as in its TOML form. `files` maps local paths to guest paths."""

    shape: Shape
    files: dict[str, str]
    setup: list[str]
    warm: list[str]
    on_fork: list[str]
    test: OwnTest
    build_egress: list[str]
    egress: list[str]
    spend_cap: float
