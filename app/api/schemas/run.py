"""Quotes and runs: what a step asks for, what it may cost, how it stands, what came of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from app.api.schemas.base import (
    Answer,
    Body,
    EgressTarget,
    Env,
    Id,
    Instant,
    Label,
    LabelName,
    Seconds,
    SnapshotRef,
    Usd,
    ns_of,
)
from app.api.schemas.command import GradeCommand, RolloutCommand
from app.domain.money import micros_of_usd
from app.domain.run import ExecSpec, Group, GuestFaults, RunSpec, StopWhen

MAX_GROUPS = 1000
NO_LIMITS = {"project_left_usd": None, "project_max_forks": None, "project_live_forks": 0}


class GroupBody(Body):
    """Forks of one snapshot that belong together, such as the samples of one prompt."""

    snapshot: SnapshotRef
    count: int
    key: Label | None = None
    env: Env = Field(default_factory=dict)

    def to_group(self) -> Group:
        return Group(self.snapshot, self.count, self.key, tuple(sorted(self.env.items())))


class StopWhenBody(Body):
    """When the run is to stop itself: so large a share of its forks was failed by the environment."""

    env_failed_share: Annotated[float, Field(gt=0, le=1)]

    def to_rule(self) -> StopWhen:
        return StopWhen(self.env_failed_share)


class QuoteBody(Body):
    """A step, priced or started. Its counts are held against the operator's limit by the route."""

    snapshot: SnapshotRef | None = None
    groups: Annotated[list[GroupBody], Field(min_length=1, max_length=MAX_GROUPS)] | None = None
    count: int | None = None
    spend_cap: Usd
    verify_each: bool = True
    exec: RolloutCommand | None = None
    grade: GradeCommand | None = None
    hold_seconds: Seconds | None = None
    environment_retries: Annotated[int, Field(ge=0, le=10)] = 2
    rerun_started: bool = False
    guest_faults: Literal["environment", "task"] = "environment"
    egress: Annotated[list[EgressTarget], Field(max_length=64)] = Field(default_factory=list)
    labels: Annotated[dict[LabelName, Label], Field(max_length=32)] = Field(default_factory=dict)
    queue_timeout_seconds: Seconds = 3600.0
    keep_failed: Annotated[int, Field(ge=0, le=100)] = 0
    stop_when: StopWhenBody | None = None

    @model_validator(mode="after")
    def _what_goes_together(self) -> Self:
        if (self.snapshot is None) == (self.groups is None):
            raise ValueError("give exactly one of snapshot and groups")
        if self.snapshot is not None and self.count is None:
            raise ValueError("a snapshot needs a count")
        if self.groups is not None and self.count is not None:
            raise ValueError("groups have counts of their own; leave count out")
        if self.exec is not None and self.hold_seconds is not None:
            raise ValueError("give exec or hold_seconds, not both")
        if self.grade is not None and self.hold_seconds is not None:
            raise ValueError("a held fork is graded when it is released; leave grade out")
        return self

    def to_spec(self) -> RunSpec:
        return RunSpec(
            groups=self._groups(),
            cap_micros=micros_of_usd("spend_cap", self.spend_cap),
            exec=self._exec(),
            grade=self.grade.to_spec() if self.grade else None,
            hold_ns=ns_of(self.hold_seconds) if self.hold_seconds is not None else None,
            verify_each=self.verify_each,
            environment_retries=self.environment_retries,
            rerun_started=self.rerun_started,
            guest_faults=GuestFaults(self.guest_faults),
            egress=tuple(self.egress),
            labels=tuple(sorted(self.labels.items())),
            queue_timeout_ns=ns_of(self.queue_timeout_seconds),
            keep_failed=self.keep_failed,
            stop_when=self.stop_when.to_rule() if self.stop_when else None,
        )

    def _exec(self) -> ExecSpec | None:
        """A quote may leave its command open: it is then priced as one of the default limit."""
        if self.exec is not None:
            return self.exec.to_spec()
        return ExecSpec(argv=()) if self.hold_seconds is None else None

    def _groups(self) -> tuple[Group, ...]:
        if self.groups is not None:
            return tuple(group.to_group() for group in self.groups)
        assert self.snapshot is not None
        assert self.count is not None
        return (Group(self.snapshot, self.count),)


class StartBody(QuoteBody):
    """A step to be started; with `quote_id` it is held to that quote."""

    quote_id: Id | None = None

    @model_validator(mode="after")
    def _has_work(self) -> Self:
        if self.exec is None and self.hold_seconds is None:
            raise ValueError("give exec (a command for every fork) or hold_seconds")
        return self


class Rate(Answer):
    usd_per_fork_hour: float
    basis: Literal["committed", "on_demand"]
    card_version: str


class Concurrency(Answer):
    """`binding` says what lets no more forks of the step run at once."""

    requested: int
    slots: int
    free_now: int
    binding: Literal["request", "hosts", "project"] = "hosts"


class QuoteLimits(Answer):
    """`binding` says which limit the budget is; the project's are as they stood when the quote was made."""

    binding: Literal["worst_case", "spend_cap", "project_budget"]
    project_left_usd: float | None
    project_max_forks: int | None
    project_live_forks: int


class Quote(Answer):
    """The most that a step can cost, said before it starts."""

    quote_id: str
    max_cost_usd: float
    worst_case_usd: float
    spend_cap_usd: float
    funded_seconds_per_fork: float
    rate: Rate
    concurrency: Concurrency
    limits: QuoteLimits
    accelerator: Literal["kvm", "tcg"]
    expires_at: Instant

    @model_validator(mode="before")
    @classmethod
    def _without_limits(cls, given: Any) -> Any:
        """An answer that was kept for its idempotency key by a release without projects' limits is given again."""
        if not isinstance(given, dict) or "limits" in given:
            return given
        whole = given["max_cost_usd"] == given["worst_case_usd"]
        return given | {"limits": {**NO_LIMITS, "binding": "worst_case" if whole else "spend_cap"}}


class Started(Answer):
    run_id: str
    state: str
    quote: Quote


class Totals(Answer):
    """The last eight add up to `requested`, always."""

    requested: int
    passed: int
    failed: int
    timed_out: int
    released: int
    env_failed: int
    capped: int
    cancelled: int
    pending: int


class Cost(Answer):
    """Tasks, environment and verification add up to the total; the total never exceeds the cap."""

    total_usd: float
    spend_cap_usd: float
    tasks_usd: float
    environment_usd: float
    verification_usd: float
    rate_usd_per_fork_hour: float


class StopRule(Answer):
    """The rule as it was given."""

    env_failed_share: float


class Stopped(Answer):
    """A run's own rule stopped it: how many forks had ended `env_failed`, how many others it stopped, and when."""

    stop_when: StopRule
    env_failed: int
    forks: int
    at: Instant


class Progress(Answer):
    """Forks that are in each state now; they add up to the pending ones. Those that are kept are among the ready."""

    queued: int
    restoring: int
    checking: int
    ready: int
    running: int
    kept: int = 0
    waiting_for: str | None


class Run(Answer):
    run_id: str
    state: Literal["queued", "running", "ended"]
    final: bool
    snapshots: list[str]
    labels: dict[str, str]
    created_at: Instant
    ended_at: Instant | None
    quote: Quote
    totals: Totals
    cost: Cost
    stopped: Stopped | None = None
    progress: Progress


class Runs(Answer):
    runs: list[Run]
    next_cursor: str | None


class Check(Answer):
    """One probe of the fork contract and what was seen."""

    name: str
    sound: bool
    seen: Any
    seconds: float


class Failure(Answer):
    """An environment failure with the facts that were seen."""

    kind: str
    phase: str
    code: str
    message: str
    retryable: bool
    task_may_have_caused: bool
    evidence: dict[str, Any]


Outcome = Literal["passed", "failed", "timed_out", "released", "env_failed", "capped", "cancelled"]


class Grade(Answer):
    """What a grade command found. Not `valid`: no reward, and `reason` says why; the fork is `env_failed` then."""

    reward: float | None
    valid: bool
    reason: str | None
    exit_code: int | None
    seconds: float
    stdout_tail: str
    stderr_tail: str


class Kept(Answer):
    """A fork whose machine is kept: what it will end for, and when it ends at the latest."""

    outcome: Outcome
    reason: str
    until: Instant


class ForkReport(Answer):
    """One fork's end; train on `reward` only where `reward_valid`."""

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
    kept: Kept | None = None
    draining: bool = False
    gone_at: Instant | None = None


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


class Report(Answer):
    """What came of a run; `forks` is absent when it was asked for without them."""

    run_id: str
    state: Literal["queued", "running", "ended"]
    final: bool
    totals: Totals
    cost: Cost
    stopped: Stopped | None = None
    forks: list[ForkReport] = Field(default_factory=list)
    environment_failures: list[FailedAttempt]
