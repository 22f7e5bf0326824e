"""Quotes, runs and their reports."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from promigence.types.terms import StopWhen

RunState = Literal["queued", "running", "ended"]
Outcome = Literal["passed", "failed", "timed_out", "released", "env_failed", "capped", "cancelled"]


class Rate(TypedDict):
    usd_per_fork_hour: float
    basis: Literal["committed", "on_demand"]
    card_version: str


class Concurrency(TypedDict):
    """How much of a step can run at once; `binding` says what lets no more of it."""

    requested: int
    slots: int
    free_now: int
    binding: Literal["request", "hosts", "project"]


class QuoteLimits(TypedDict):
    """`binding` says which limit `max_cost_usd` is; the project's are as they stood when the quote was made."""

    binding: Literal["worst_case", "spend_cap", "project_budget"]
    project_left_usd: float | None
    project_max_forks: int | None
    project_live_forks: int


class Quote(TypedDict):
    """The most that a run can cost: `max_cost_usd` is its worst case, the cap or what the project has left this
    month, whichever is least.
    """

    quote_id: str
    max_cost_usd: float
    worst_case_usd: float
    spend_cap_usd: float
    funded_seconds_per_fork: float
    rate: Rate
    concurrency: Concurrency
    limits: QuoteLimits
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


class Stopped(TypedDict):
    """A run's own rule stopped it: how many forks had ended `env_failed`, how many others it stopped, and when."""

    stop_when: StopWhen
    env_failed: int
    forks: int
    at: str


class Progress(TypedDict):
    """Pending forks by their state; those that are `kept` are among the ready. `waiting_for` says in words what the
    queued ones wait for.
    """

    queued: int
    restoring: int
    checking: int
    ready: int
    running: int
    kept: int
    waiting_for: str | None


class Run(TypedDict):
    """A run without its forks. Decide by `final`; `state` is for people."""

    run_id: str
    state: RunState
    final: bool
    snapshots: list[str]
    labels: dict[str, str]
    created_at: str
    ended_at: str | None
    quote: Quote
    totals: Totals
    cost: Cost
    stopped: Stopped | None
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


class Grade(TypedDict):
    """What a grade command found. Not `valid`: no reward, and `reason` says why; the fork is `env_failed` then."""

    reward: float | None
    valid: bool
    reason: str | None
    exit_code: int | None
    seconds: float
    stdout_tail: str
    stderr_tail: str


class Kept(TypedDict):
    """A fork whose machine is kept (`keep_failed`): what it will end for, and when it ends at the latest."""

    outcome: Outcome
    reason: str
    until: str


class ForkReport(TypedDict):
    """One fork's end. Train on `reward` only where `reward_valid`."""

    fork_id: str
    index: int
    key: str | None
    snapshot: str
    outcome: Outcome | Literal["pending"]
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
    grade: Grade | None
    failure: Failure | None
    kept: Kept | None
    draining: bool
    gone_at: str | None


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
    state: RunState
    final: bool
    totals: Totals
    cost: Cost
    stopped: Stopped | None
    environment_failures: list[FailedAttempt]


class Report(_ReportBase, total=False):
    """What came of a run; `forks` is absent when it was asked for without them."""

    forks: list[ForkReport]


class RewardGroup(TypedDict):
    """Forks with one key and one snapshot, such as the samples of one prompt: a baseline is taken over them.

    `indices` are places in the lists of `Rewards`, ended or not; `attempted` and `valid` count as there.
    """

    key: str | None
    snapshot: str
    indices: list[int]
    attempted: int
    valid: int


class Rewards(TypedDict):
    """A report as a trainer takes it: lists by fork index, its groups in that order, and both denominators."""

    rewards: list[float | None]
    mask: list[bool]
    keys: list[str | None]
    groups: list[RewardGroup]
    attempted: int
    valid: int
