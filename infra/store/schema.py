"""What a row is, and the constraints that hold whoever writes it. Who calls is in `callers.py`."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import (
    CheckConstraint,
    Index,
    UniqueConstraint,
)
from sqlmodel import Field

from app.domain.checks import Check
from app.domain.deployment import FIRST_EPOCH
from app.domain.failure import Failure
from app.domain.fork import EndReason, ForkState, Outcome
from app.domain.machine import RestoreKey
from app.domain.quote import Quote
from app.domain.run import (
    ExecPurpose,
    ExecResult,
    ExecSpec,
    ExecState,
    FileMove,
    Look,
    Result,
    Role,
    RunKind,
    RunSpec,
    RunState,
    Stopped,
)
from app.domain.snapshot import BuildError, BuildState, Candidate, Definition, Origin
from infra.store.base import IN_PLACE, Row, known, not_negative, partial_index, refers
from infra.store.columns import as_json, as_text, as_word, big

Pairs = tuple[tuple[str, str], ...]
Words = tuple[str, ...]
Facts = dict[str, object]


class LedgerKind(StrEnum):
    """Why money moved. An entry is unique for (subject, kind, sequence): nothing is booked twice."""

    BUDGET = "budget"  # a run's: the pool and the grants it began with
    CHARGE = "charge"  # an attempt's: from its fork's grant
    TOP_UP = "top_up"  # an attempt's: from the pool to the grant that funds the replacement
    GRANT = "grant"  # an attempt's: from the pool to the forks that joined at its end
    RETURN = "return"  # a fork's: what was left of its grant, to the pool
    SHARE = "share"  # a run's, by number: from the pool to the grants of its forks


class SnapshotRow(Row, table=True):
    """A deleted version stays as a row, so that its number is never given again."""

    __tablename__ = "snapshot"
    __table_args__ = (
        UniqueConstraint("project_id", "name", "version"),
        UniqueConstraint("project_id", "ref"),
        CheckConstraint("version >= 1", name="version_from_1"),
    )

    snapshot_id: str = Field(primary_key=True)
    project_id: str
    name: str
    version: int
    ref: str
    definition: Definition = as_json(Definition)
    bundle_id: str
    restore_key: RestoreKey = as_json(RestoreKey)
    boot_id: str
    disk_id: str
    size_bytes: int = big()
    evidence: Facts = as_json(Facts)
    provenance: Facts = as_json(Facts)
    created_ns: int = big()
    deleted_ns: int | None = big(default=None)


class QuoteRow(Row, table=True):
    __tablename__ = "quote"
    __table_args__ = (Index("ix_quote_expires_ns", "expires_ns"),)

    quote_id: str = Field(primary_key=True)
    project_id: str
    quote: Quote = as_json(Quote)
    spec_sha256: str
    expires_ns: int = big()


class RunRow(Row, table=True):
    """`hold_ns`, `queue_timeout_ns` and `micros_per_hour` repeat what spec and quote say, for statements to read."""

    __tablename__ = "run"
    __table_args__ = (
        *not_negative("budget_micros", "pool_micros", "granted_micros", "charged_micros"),
        CheckConstraint(
            "budget_micros = pool_micros + granted_micros + charged_micros", name="budget_adds_up"
        ),
        CheckConstraint("state <> 'ended' OR granted_micros = 0", name="ended_holds_no_grant"),
        known("state", RunState),
        known("kind", RunKind),
        Index("ix_run_project_id_created_ns", "project_id", "created_ns"),
        partial_index("ix_run_active", "state = 'active'", "created_ns"),
    )

    run_id: str = Field(primary_key=True)
    project_id: str
    kind: RunKind = as_word(RunKind)
    state: RunState = as_word(RunState)
    spec: RunSpec = as_json(RunSpec)
    quote: Quote = as_json(Quote)
    budget_micros: int = big()
    pool_micros: int = big()
    granted_micros: int = big()
    charged_micros: int = big()
    micros_per_hour: int = big()
    hold_ns: int | None = big(default=None)
    queue_timeout_ns: int = big()
    created_ns: int = big()
    ended_ns: int | None = big(default=None)
    stopped: Stopped | None = as_json(Stopped, default=None)


class LabelRow(Row, table=True):
    __tablename__ = "run_label"
    __table_args__ = (
        refers("run_id", "run"),
        Index("ix_run_label_name_value", "name", "value"),
    )

    run_id: str = Field(primary_key=True)
    name: str = as_text(primary_key=True)
    value: str = as_text()


class ForkRow(Row, table=True):
    """A fork with a host and no end has its room reserved there, whether its machine runs yet or not."""

    __tablename__ = "fork"
    __table_args__ = (
        refers("run_id", "run"),
        refers("host_id", "host"),
        *not_negative("grant_micros", "worst_micros", "smallest_micros", "worst_attempt_ns"),
        CheckConstraint(
            "(state = 'ended') = (outcome IS NOT NULL) AND (state = 'ended') = (reason IS NOT NULL)",
            name="an_end_has_its_reason",
        ),
        CheckConstraint("(kept IS NULL) = (kept_until_ns IS NULL)", name="kept_until_some_time"),
        # Whatever ends a machine that is kept, the verdict on its fork stands.
        CheckConstraint(
            "kept IS NULL OR reason IS NULL OR reason = kept", name="kept_is_its_verdict"
        ),
        CheckConstraint("state <> 'ended' OR grant_micros = 0", name="ended_holds_no_grant"),
        known("state", ForkState),
        Index("ix_fork_run_id_index", "run_id", "index"),
        partial_index("ix_fork_live_of_run", "state <> 'ended'", "run_id"),
        partial_index("ix_fork_live_of_host", "state <> 'ended'", "host_id"),
        partial_index("ix_fork_live_of_snapshot", "state <> 'ended'", "project_id", "snapshot"),
        partial_index("ix_fork_queued", "state = 'queued'", "host_id", "queued_ns", "index"),
        partial_index("ix_fork_env_failed", "outcome = 'env_failed'", "run_id"),
        IN_PLACE,
    )

    fork_id: str = Field(primary_key=True)
    run_id: str
    project_id: str
    index: int
    snapshot: str
    bundle_id: str
    restore_key: RestoreKey | None = as_json(RestoreKey, default=None)
    vcpus: int
    memory_mib: int
    disk_gib: int
    grant_micros: int = big()
    worst_micros: int = big()
    worst_attempt_ns: int = big()
    smallest_micros: int = big()
    key: str | None = as_text(default=None)
    env: Pairs = as_json(Pairs)
    role: Role = as_word(Role)
    state: ForkState = as_word(ForkState)
    reason: EndReason | None = as_word(EndReason, default=None)
    outcome: Outcome | None = as_word(Outcome, default=None)
    stop_asked: EndReason | None = as_word(EndReason, default=None)
    host_id: str | None = None
    avoid_hosts: Words = as_json(Words)
    attempt_id: str | None = None
    attempts: int
    result: Result = as_json(Result)
    checks: tuple[Check, ...] = as_json(tuple[Check, ...])
    failure: Failure | None = as_json(Failure, default=None)
    queued_ns: int = big()
    ready_ns: int | None = big(default=None)
    ended_ns: int | None = big(default=None)
    kept: EndReason | None = as_word(EndReason, default=None)
    kept_until_ns: int | None = big(default=None)


class AttemptRow(Row, table=True):
    """`*_boot_ns` are the host's clock; `opened_ns`, `ready_ns` and `closed_ns` the database's, which alone decides."""

    __tablename__ = "attempt"
    __table_args__ = (
        refers("fork_id", "fork"),
        refers("run_id", "run"),
        refers("host_id", "host"),
        UniqueConstraint("fork_id", "number"),
        *not_negative(
            "lease_ns",
            "charged_micros",
            "verification_micros",
            "tasks_micros",
            "environment_micros",
            "late_ns",
        ),
        CheckConstraint(
            "closed_boot_ns IS NULL OR "
            "charged_micros = verification_micros + tasks_micros + environment_micros",
            name="parts_add_up",
        ),
        # In floating point, so that no product is too large for 64 bits; 2 are the rounding up, and room for its error.
        CheckConstraint(
            "charged_micros <= 2 + lease_ns / 3600000000000.0 * micros_per_hour",
            name="charged_within_its_lease",
        ),
        CheckConstraint(
            "closed_boot_ns IS NOT NULL OR charged_micros <= 0", name="charged_at_its_end"
        ),
        Index("ix_attempt_run_id_opened_ns", "run_id", "opened_ns"),
        Index("ix_attempt_closed_ns", "closed_ns"),
        # What a host's login may see of a run goes by it.
        Index("ix_attempt_host_id_run_id", "host_id", "run_id"),
        partial_index("ix_attempt_open", "closed_boot_ns IS NULL", "attempt_id"),
        # Two machines on one grant could cost twice what it holds.
        partial_index("ux_attempt_open_of_fork", "closed_boot_ns IS NULL", "fork_id", unique=True),
        partial_index("ix_attempt_open_of_host", "closed_boot_ns IS NULL", "host_id"),
        IN_PLACE,
    )

    attempt_id: str = Field(primary_key=True)
    fork_id: str
    run_id: str
    number: int
    host_id: str
    claim: str
    boot_id: str
    opened_boot_ns: int = big()
    lease_ns: int = big()
    micros_per_hour: int = big()
    ready_boot_ns: int | None = big(default=None)
    closed_boot_ns: int | None = big(default=None)
    charged_micros: int = big(default=0)
    verification_micros: int = big(default=0)
    tasks_micros: int = big(default=0)
    environment_micros: int = big(default=0)
    late_ns: int = big(default=0)
    intent: bool = False
    failure: Failure | None = as_json(Failure, default=None)
    console: str | None = as_text(default=None)
    opened_ns: int = big()
    ready_ns: int | None = big(default=None)
    closed_ns: int | None = big(default=None)
    epoch: int = big(default=FIRST_EPOCH, sa_column_kwargs={"server_default": "1"})


class SampleRow(Row, table=True):
    """The entropy samples of a run's machines: no two are ever the same."""

    __tablename__ = "sample"
    __table_args__ = (
        refers("run_id", "run"),
        refers("attempt_id", "attempt"),
    )

    run_id: str = Field(primary_key=True)
    sample: str = as_text(primary_key=True)
    attempt_id: str


class LedgerRow(Row, table=True):
    """One move of a run's money; the sums over a run are its row's figures."""

    __tablename__ = "ledger"
    __table_args__ = (
        refers("run_id", "run"),
        CheckConstraint(
            "kind = 'budget' OR pool_micros + granted_micros + charged_micros = 0",
            name="moves_and_makes_nothing",
        ),
        known("kind", LedgerKind),
        Index("ix_ledger_run_id", "run_id"),
    )

    subject_id: str = Field(primary_key=True)
    kind: LedgerKind = as_word(LedgerKind, primary_key=True)
    sequence: int = Field(primary_key=True)
    run_id: str
    pool_micros: int = big()
    granted_micros: int = big()
    charged_micros: int = big()
    booked_ns: int = big()


class ExecRow(Row, table=True):
    __tablename__ = "exec"
    __table_args__ = (
        refers("fork_id", "fork"),
        refers("attempt_id", "attempt"),
        known("state", ExecState),
        partial_index("ix_exec_unfinished", "state IN ('queued', 'running')", "attempt_id"),
        Index("ix_exec_fork_id", "fork_id"),
    )

    exec_id: str = Field(primary_key=True)
    fork_id: str
    attempt_id: str
    project_id: str
    purpose: ExecPurpose = as_word(ExecPurpose)
    spec: ExecSpec | None = as_json(ExecSpec, default=None)
    state: ExecState = as_word(ExecState)
    result: ExecResult | None = as_json(ExecResult, default=None)
    failure: Failure | None = as_json(Failure, default=None)
    file: FileMove | None = as_json(FileMove, default=None)
    name: str | None = None
    look: Look | None = as_json(Look, default=None)
    asked_ns: int = big()


class BuildRow(Row, table=True):
    __tablename__ = "build"
    __table_args__ = (
        refers("run_id", "run"),
        UniqueConstraint("run_id"),
        UniqueConstraint("template_fork_id"),
        known("state", BuildState),
        partial_index(
            "ix_build_unsettled", "state IN ('queued', 'building', 'verifying')", "created_ns"
        ),
    )

    build_id: str = Field(primary_key=True)
    project_id: str
    run_id: str
    template_fork_id: str
    definition: Definition = as_json(Definition)
    state: BuildState = as_word(BuildState)
    step: str = as_text()
    candidate: Candidate | None = as_json(Candidate, default=None)
    origin: Origin | None = as_json(Origin, default=None)
    snapshot_ref: str | None = None
    error: BuildError | None = as_json(BuildError, default=None)
    lines: int = 0
    created_ns: int = big()


class LineRow(Row, table=True):
    __tablename__ = "build_line"
    __table_args__ = (refers("build_id", "build"),)

    build_id: str = Field(primary_key=True)
    n: int = Field(primary_key=True)
    step: str = as_text()
    text: str = as_text()
