"""What a caller asks for (a run's spec), and the rows that a run consists of: forks, attempts, commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from app.domain.checks import Check
from app.domain.deployment import FIRST_EPOCH
from app.domain.failure import Failure
from app.domain.fork import EndReason, ForkState, Outcome
from app.domain.grade import Grade
from app.domain.ledger import Purse
from app.domain.machine import TAIL_BYTES, RestoreKey, Shape, tail
from app.domain.money import NS_PER_SECOND
from app.domain.quote import Quote

DEFAULT_TIMEOUT_NS = 3600 * NS_PER_SECOND
MAX_PARALLEL_EXECS = 8


class GuestFaults(StrEnum):
    """Whose fault it is when a guest dies of itself once a command may have started."""

    ENVIRONMENT = "environment"
    TASK = "task"


@dataclass(frozen=True, slots=True)
class ExecSpec:
    """A command as the caller gave it; `{"sh": s}` has become `("/bin/sh", "-c", s)`.

    `result_required` is a grade's: one that wrote no result file has crashed, whatever its exit code.
    """

    argv: tuple[str, ...]
    cwd: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    timeout_ns: int = DEFAULT_TIMEOUT_NS
    environment_exit_codes: tuple[int, ...] = ()
    result_required: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Forks of one snapshot that belong together, such as the samples of one prompt."""

    snapshot: str
    count: int
    key: str | None = None
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StopWhen:
    """When a run stops itself: so large a share of its forks ended `env_failed` (0 < share <= 1)."""

    env_failed_share: float

    def reached(self, env_failed: int, requested: int) -> bool:
        """By the share as it was written: seven of a hundred are 0.07, which no binary number is."""
        return env_failed >= Decimal(str(self.env_failed_share)) * requested


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that `runs.start` was given. Exactly one of `exec` and `hold_ns` is set."""

    groups: tuple[Group, ...]
    cap_micros: int
    exec: ExecSpec | None = None
    grade: ExecSpec | None = None
    hold_ns: int | None = None
    verify_each: bool = True
    environment_retries: int = 2
    rerun_started: bool = False
    guest_faults: GuestFaults = GuestFaults.ENVIRONMENT
    egress: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    queue_timeout_ns: int = 3600 * NS_PER_SECOND
    keep_failed: int = 0
    stop_when: StopWhen | None = None

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups)


class RunKind(StrEnum):
    """A user's run, or the internal run of a build: its template and its verification forks."""

    USER = "user"
    BUILD = "build"


class RunState(StrEnum):
    ACTIVE = "active"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Stopped:
    """That a run's own rule stopped it: the share that was agreed, how many had ended so by then, and when.

    `forks` are those that it stopped: asked to, or ended while they waited.
    """

    env_failed_share: float
    env_failed: int
    forks: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Run:
    """A run's row. `budget = pool + granted + charged`, always."""

    run_id: str
    project_id: str
    kind: RunKind
    state: RunState
    spec: RunSpec
    quote: Quote
    budget_micros: int
    pool_micros: int
    granted_micros: int
    charged_micros: int
    created_ns: int
    ended_ns: int | None = None
    stopped: Stopped | None = None

    @property
    def purse(self) -> Purse:
        return Purse(self.budget_micros, self.pool_micros, self.granted_micros, self.charged_micros)


class Role(StrEnum):
    FORK = "fork"
    TEMPLATE = "template"


@dataclass(frozen=True, slots=True)
class Result:
    """What a fork's command left behind, and its grade, if one ran. Time is measured, never the configured limit."""

    exit_code: int | None = None
    signal: int | None = None
    stdout_tail: str = ""
    stderr_tail: str = ""
    truncated: bool = False
    duration_ns: int = 0
    reward: float | None = None
    grade: Grade | None = None


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork's row: where it stands, what it may spend, what it needs of a host.

    `kept` is the reason that it will end for: its verdict stands, and its machine is kept to be looked at until
    `kept_until_ns` at the latest, by the database's clock.
    """

    fork_id: str
    run_id: str
    project_id: str
    index: int
    snapshot: str
    bundle_id: str
    restore_key: RestoreKey | None
    shape: Shape
    grant_micros: int
    worst_micros: int
    worst_attempt_ns: int
    smallest_micros: int
    key: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    role: Role = Role.FORK
    state: ForkState = ForkState.QUEUED
    reason: EndReason | None = None
    outcome: Outcome | None = None
    stop_asked: EndReason | None = None
    host_id: str | None = None
    avoid_hosts: tuple[str, ...] = ()
    attempt_id: str | None = None
    attempts: int = 0
    result: Result = field(default_factory=Result)
    checks: tuple[Check, ...] = ()
    failure: Failure | None = None
    queued_ns: int = 0
    ready_ns: int | None = None
    ended_ns: int | None = None
    kept: EndReason | None = None
    kept_until_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One machine's life for one fork. Readings are of the host's boot-time clock, comparable within `boot_id`."""

    attempt_id: str
    fork_id: str
    run_id: str
    number: int
    host_id: str
    claim: str
    boot_id: str
    opened_boot_ns: int
    lease_ns: int
    micros_per_hour: int
    ready_boot_ns: int | None = None
    closed_boot_ns: int | None = None
    charged_micros: int = 0
    verification_micros: int = 0
    late_ns: int = 0
    intent: bool = False
    failure: Failure | None = None
    epoch: int = FIRST_EPOCH

    @property
    def deadline_boot_ns(self) -> int:
        return self.opened_boot_ns + self.lease_ns


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a worker holds while it acts on a machine: the rows as they were when it claimed them."""

    attempt: Attempt
    fork: Fork
    run: Run


@dataclass(frozen=True, slots=True)
class Closing:
    """How an attempt is closed. `then` None sends the fork back to wait for another machine (a replacement).

    `boot_id` is that of the reading `closed_boot_ns`; None means the attempt's own. `console` is the guest console's
    tail. The verdict of a fork that was kept stands, whatever is said here.
    """

    closed_boot_ns: int
    then: EndReason | None
    result: Result = field(default_factory=Result)
    failure: Failure | None = None
    checks: tuple[Check, ...] = ()
    late_ns: int = 0
    boot_id: str | None = None
    console: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a fork whose machine is kept will end for, and with what."""

    reason: EndReason
    result: Result = field(default_factory=Result)
    failure: Failure | None = None
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Closed:
    """What a closing brought about, for the bells that follow it; what follows for its run is `Meters.settle`'s."""

    fork_state: ForkState
    lost_exec_ids: tuple[str, ...] = ()


class ExecPurpose(StrEnum):
    """What a command is for; the platform's own (test) never counts as the task's.

    `CONSOLE` and `OUTPUT` start nothing in the guest: they ask its host for the console's tail, and for what a running
    command has printed so far.
    """

    TEST = "test"
    TASK = "task"
    GRADE = "grade"
    HELD = "held"
    UPLOAD = "upload"
    DOWNLOAD = "download"
    CONSOLE = "console"
    OUTPUT = "output"


LOOKS = frozenset({ExecPurpose.CONSOLE, ExecPurpose.OUTPUT})


class ExecState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Exec:
    """One command, or one file moved, on one machine. RUNNING means that the intent is committed.

    `name` is the id that its caller gave it, if there is one. `look` is what an OUTPUT asks for.
    """

    exec_id: str
    fork_id: str
    attempt_id: str
    project_id: str
    purpose: ExecPurpose
    spec: ExecSpec | None
    state: ExecState = ExecState.QUEUED
    result: ExecResult | None = None
    failure: Failure | None = None
    file: FileMove | None = None
    name: str | None = None
    look: Look | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """A stream (`stdout` or `stderr`) of a running command, from a byte on."""

    exec_id: str
    stream: str
    start: int = 0


@dataclass(frozen=True, slots=True)
class FileMove:
    """A file between the blobs and a guest."""

    guest_path: str
    sha256: str | None = None
    mode: int = 0o644
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ExecResult:
    """A command's end, as the caller reads it. `error` is the code and message of a refused file move.

    `truncated` says that the texts here are not all that was printed. Where they are not even all that the guest kept,
    a blob has that; `cut` says that the guest itself kept only head and tail. `grade` is what a grade command found:
    read from the guest before its machine is ended. `read_to` is of a look at a running command: the byte from which
    the next one goes on.
    """

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    duration_ns: int = 0
    error: tuple[str, str] | None = None
    grade: Grade | None = None
    cut: bool = False
    read_to: int = 0
    stdout_blob: Blob | None = None
    stderr_blob: Blob | None = None

    def reported(self) -> Result:
        """What a report keeps of it: measured time, and the last 4 KiB of each stream."""
        stdout, stderr = self.stdout.encode(), self.stderr.encode()
        return Result(
            exit_code=self.exit_code,
            signal=self.signal,
            stdout_tail=tail(stdout),
            stderr_tail=tail(stderr),
            truncated=self.truncated or max(len(stdout), len(stderr)) > TAIL_BYTES,
            duration_ns=self.duration_ns,
        )


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes that are kept under their hash."""

    sha256: str
    size_bytes: int
