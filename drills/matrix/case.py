"""One case of the fault matrix: what runs, how it is broken, and what has to be seen of it.

How to write one. A case is one group of forks of a run, on a busybox of 128 MiB. Most faults are a line of shell: the
task's own `command`, its `grade`, the `hook` that runs after the barrier, or the snapshot's own `test`. A fault from
outside is a `cause`: a function that gets the `Scene` (stack, rows, machines' pids and directories), runs in a thread
of its own from the moment the run has started, and waits for what it needs with `scene.until(...)`, never with a bare
sleep. What has to stand before the run starts (a listener, a spoilt file) is `around`, a context manager over the
run's whole life; it puts everything back. What only the case itself can judge (a counter outside of the guest) is
`also`, after the end.

Cases with equal `terms` share one run; in each run two healthy siblings live at the same time, and have to end as they
should. A case that breaks more than its own machine (a worker, Redis, the database, the host) is `alone`: its run is
the only one then, and its siblings have to survive it. Give the siblings `siblings_s` so that they live through it.

`expect` is one `Expect` a fork, in the order of the group. Say all that the contract says; what is left out is not
judged but by the common rules: the reward follows from the outcome, a failure has evidence, costs add up to the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from drills.matrix.scene import Scene

Part = Literal["tasks", "environment", "verification"]

# A bound, not a duration: by emulation, on two cores, with all cases of a wave coming up at once.
FINAL_WITHIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Fact:
    """A piece of evidence that has to be there: `holds` is asked of the value under `key`, None where there is none."""

    key: str
    want: str
    holds: Callable[[object], bool]


def there(key: str) -> Fact:
    """Any value that is not empty."""
    return Fact(key, "is there", bool)


def equals(key: str, value: object) -> Fact:
    """Exactly this value, of this type (`True` is not 1)."""
    return Fact(
        key, f"is {value!r}", lambda seen: type(seen) is type(value) and bool(seen == value)
    )


def says(key: str, part: str) -> Fact:
    """The value, as text, contains this."""
    return Fact(key, f"says {part!r}", lambda seen: seen is not None and part in str(seen))


@dataclass(frozen=True, slots=True)
class Expect:
    """How one fork has to end, and what its report and its rows have to say.

    `reward` is judged where it is given; where not, it is what the outcome means (1.0, 0.0, None). Its being valid is
    the same as its being there. `cost` is the part in which the whole charge of the last attempt has to be, or `tasks`
    for an attempt that ended as a task: its verification apart. `failed` are the kinds of all failed attempts, in
    their order: by default the fork's own `kind`, if it has one. `attempts` counts machines. `evidence` is of the last
    failure.
    """

    outcome: str
    reason: str | None = None
    kind: str | None = None
    phase: str | None = None
    task_may_have_caused: bool | None = None
    retryable: bool | None = None
    exit_code: int | None = None
    reward: float | None = None
    evidence: tuple[Fact, ...] = ()
    output: str | None = None
    truncated: bool | None = None
    cost: Part | None = None
    attempts: int = 1
    failed: tuple[str, ...] | None = None

    @property
    def failures(self) -> tuple[str, ...]:
        """The kinds of its failed attempts."""
        if self.failed is not None:
            return self.failed
        return () if self.kind is None else (self.kind,)


def passes(**told: object) -> Expect:
    """A fork that no fault has touched: its command ended with 0."""
    return _expect("passed", "command_passed", "tasks", {"exit_code": 0, **told})


def fails(exit_code: int | None = None, **told: object) -> Expect:
    """The task's own failure."""
    return _expect("failed", "command_failed", "tasks", {"exit_code": exit_code, **told})


def breaks(kind: str, phase: str, *evidence: Fact, **told: object) -> Expect:
    """An environment failure: no reward, all of its cost in the environment's part."""
    rest = {"kind": kind, "phase": phase, "evidence": evidence, **told}
    return _expect("env_failed", "environment_failed", "environment", rest)


@dataclass(frozen=True, slots=True)
class Template:
    """A snapshot that cases fork. What a case's `hook` and `test` say is run by its hook and its own test.

    `programs` are C sources of this package, by name: compiled for the guest and put into its `/bin`.

    A `doomed` one is spoilt by its cases, so no sibling forks it.
    """

    name: str = "matrix"
    setup: tuple[str, ...] = ("mkdir /workspace", "echo eve:x:77:78::/:/bin/sh >> /etc/passwd")
    warm: tuple[str, ...] = ()
    programs: tuple[str, ...] = ("channels",)
    memory_mib: int = 128
    disk_gib: int = 1
    test_timeout_s: float = 8.0
    doomed: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """What a run is started with, the same for all cases in it. Faults are not replaced unless a case is about that.

    `egress` lets the forks reach the drill's own servers (`policy.py`), whose names are in their environment. With
    `grade` each fork's own `grade` is run after its command. With `hold_s` there is no command: the cause talks to the
    fork.
    """

    timeout_s: float = 60.0
    environment_exit_codes: tuple[int, ...] = ()
    cwd: str | None = None
    user: str | None = None
    grade: bool = False
    grade_timeout_s: float = 20.0
    grade_user: str | None = None
    grade_result_required: bool = False
    hold_s: float | None = None
    verify_each: bool = False
    environment_retries: int = 0
    rerun_started: bool = False
    guest_faults: Literal["environment", "task"] = "environment"
    egress: bool = False
    queue_timeout_s: float | None = None
    spend_cap_usd: float = 1.0


PLAIN = Template()
ORDINARY = Terms()
# All that a caller can ask for without changing what a sound command does: cases that need any of it share one run.
SERVICED = Terms(environment_exit_codes=(75,), cwd="/workspace", environment_retries=2, egress=True)


@dataclass(frozen=True, slots=True)
class Case:
    """A fault and what has to come of it. `shows` is its line in `docs/drills.md`: what is done, in words.

    `quick` cases are the ones that CI runs. `loud` ones keep the host's processors busy: they run after the quiet
    ones. Those of one `lane` break what they share (a snapshot's files): they run one after another, beside the loud
    ones. `timed` ones run out of time on purpose, and would be starved of it among many: only those with equal terms
    are there then. A host on which forks break in a row is let back into placement at once, unless `released` is False,
    which only a case that is `alone` may say; so may it have no `siblings`, where nothing on the host could be spared.
    """

    name: str
    shows: str
    expect: Expect | tuple[Expect, ...]
    command: str = "sleep 1"
    hook: str = ""
    test: str = ""
    grade: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    terms: Terms = ORDINARY
    template: Template = PLAIN
    cause: Callable[[Scene], None] | None = None
    around: Callable[[Scene], AbstractContextManager[None]] | None = None
    also: Callable[[Scene], Iterable[str]] | None = None
    alone: bool = False
    released: bool = True
    loud: bool = False
    timed: bool = False
    lane: str = ""
    quick: bool = False
    siblings: bool = True
    siblings_s: float = 1.0
    within_s: float = FINAL_WITHIN_S

    @property
    def expected(self) -> tuple[Expect, ...]:
        """One a fork."""
        return self.expect if isinstance(self.expect, tuple) else (self.expect,)


def _expect(outcome: str, reason: str, cost: Part, told: dict[str, object]) -> Expect:
    return Expect(**{"outcome": outcome, "reason": reason, "cost": cost, **told})  # type: ignore[arg-type]
