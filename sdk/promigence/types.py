"""The shapes of everything that goes in and comes out: plain dicts, typed.

Money is in US dollars, durations are in seconds, instants are RFC 3339 strings in UTC. A key without a value is None.
A server may add keys; the ones named here are always there.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Outcome = Literal[
    "passed", "failed", "timed_out", "released", "env_failed", "capped", "cancelled", "pending"
]
ForkState = Literal["queued", "restoring", "checking", "ready", "running", "ended"]
BuildState = Literal[
    "queued", "building", "verifying", "verified", "refused", "failed", "cancelled"
]


# --- what goes in ---------------------------------------------------------------------------------


class Exec(TypedDict, total=False):
    """A command: `sh` (run by `/bin/sh -c`) or `argv`, and optionally the rest.

    `timeout_seconds` is 3600 by default.
    """

    sh: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    user: str
    timeout_seconds: float
    environment_exit_codes: list[int]


class _GroupBase(TypedDict):
    snapshot: str
    count: int


class Group(_GroupBase, total=False):
    """Forks of one snapshot that belong together, such as the samples of one prompt."""

    key: str
    env: dict[str, str]


class QuoteTerms(TypedDict, total=False):
    """What a step can be given, apart from its snapshot. What is left out takes the server's default.

    `count` goes with a name, not with groups. `exec` or `hold_seconds`, not both.
    """

    count: int
    spend_cap: float
    verify_each: bool
    exec: Exec
    grade: Exec
    hold_seconds: float
    environment_retries: int
    rerun_started: bool
    guest_faults: Literal["environment", "task"]
    egress: list[str]
    labels: dict[str, str]
    queue_timeout_seconds: float
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


# --- quotes and runs ------------------------------------------------------------------------------


class Rate(TypedDict):
    usd_per_fork_hour: float
    basis: Literal["committed", "on_demand"]
    card_version: str


class Concurrency(TypedDict):
    requested: int
    slots: int
    free_now: int


class Quote(TypedDict):
    """The most that a run can cost: `max_cost_usd` is its worst case or the cap, whichever is less."""

    quote_id: str
    max_cost_usd: float
    worst_case_usd: float
    spend_cap_usd: float
    funded_seconds_per_fork: float
    rate: Rate
    concurrency: Concurrency
    accelerator: Literal["kvm", "tcg"]
    expires_at: str


class Started(TypedDict):
    run_id: str
    state: str
    quote: Quote


class Totals(TypedDict):
    """Forks by outcome; the last eight add up to `requested`, always."""

    requested: int
    passed: int
    failed: int
    timed_out: int
    released: int
    env_failed: int
    capped: int
    cancelled: int
    pending: int


class Cost(TypedDict):
    """Tasks, environment and verification add up to the total, and the total never exceeds the cap."""

    total_usd: float
    spend_cap_usd: float
    tasks_usd: float
    environment_usd: float
    verification_usd: float
    rate_usd_per_fork_hour: float


class Progress(TypedDict):
    """Pending forks by their state; `waiting_for` says in words what the queued ones wait for."""

    queued: int
    restoring: int
    checking: int
    ready: int
    running: int
    waiting_for: str | None


class Run(TypedDict):
    """A run without its forks. Decide by `final`; `state` is for people."""

    run_id: str
    state: str
    final: bool
    snapshots: list[str]
    labels: dict[str, str]
    created_at: str
    ended_at: str | None
    quote: Quote
    totals: Totals
    cost: Cost
    progress: Progress


class Check(TypedDict):
    """One probe of the fork contract: what was verified and what was seen."""

    name: str
    sound: bool
    seen: Any
    seconds: float


class Failure(TypedDict):
    """Why an environment failed, with the facts that were seen."""

    kind: str
    phase: str
    code: str
    message: str
    retryable: bool
    task_may_have_caused: bool
    evidence: dict[str, Any]


class ForkReport(TypedDict):
    """One fork's end. Train on `reward` only where `reward_valid`."""

    fork_id: str
    index: int
    key: str | None
    snapshot: str
    outcome: Outcome
    reason: str | None
    reward: float | None
    reward_valid: bool
    exit_code: int | None
    stdout_tail: str
    stderr_tail: str
    truncated: bool
    seconds: float
    cost_usd: float
    host: str | None
    checks: list[Check]
    attempts: int
    failure: Failure | None


class FailedAttempt(Failure):
    """One machine that failed, whether or not its fork was replaced."""

    fork_id: str
    index: int
    key: str | None
    snapshot: str
    attempt: int
    host: str | None
    cost_usd: float
    replaced: bool


class _ReportBase(TypedDict):
    run_id: str
    state: str
    final: bool
    totals: Totals
    cost: Cost
    environment_failures: list[FailedAttempt]


class Report(_ReportBase, total=False):
    """What came of a run; `forks` is absent when it was asked for without them."""

    forks: list[ForkReport]


class Rewards(TypedDict):
    """A report as a trainer takes it: lists by fork index, and both denominators."""

    rewards: list[float | None]
    mask: list[bool]
    keys: list[str | None]
    attempted: int
    valid: int


# --- held forks -----------------------------------------------------------------------------------


class Fork(TypedDict):
    """A fork as it stands; `outcome` and `reason` are None until it has ended."""

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


# --- snapshots and hosts --------------------------------------------------------------------------


class BuildLine(TypedDict):
    n: int
    step: str
    text: str


class Build(TypedDict):
    """A build as it stands; `log` holds the lines that are new since the last look."""

    build_id: str
    name: str
    state: BuildState
    step: str | None
    log: list[BuildLine]
    snapshot: str | None
    error: dict[str, Any] | None
    cost_usd: float


class Snapshot(TypedDict):
    """One immutable, verified version; `snapshot` is `name@version`."""

    snapshot: str
    name: str
    version: int
    latest: bool
    state: Literal["verified", "stale"]
    image: str
    shape: Shape
    egress: list[str]
    restore_key: str
    accelerator: Literal["kvm", "tcg"]
    created_at: str
    bytes: int
    checks: list[Check]
    provenance: dict[str, Any]


class Deleted(TypedDict):
    deleted: list[str]


class Host(TypedDict):
    """A host and its fitness; `missing` says in words what it cannot do."""

    host_id: str
    state: str
    accelerator: Literal["kvm", "tcg"]
    accelerator_reason: str
    cpu_model: str
    vcpus: int
    memory_mib: int
    disk_gib: int
    slots: int
    slots_free: int
    restore_keys: list[str]
    mounted: list[str]
    missing: list[str]
    heartbeat_age_seconds: float
