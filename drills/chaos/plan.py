"""What a seed asks for: its runs, and what each command would do by itself. A pure function of the dice."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum

from app.domain.run import ExecSpec, Group, GuestFaults, RunSpec, StopWhen

TIMEOUT_S = 12.0
GRADE_TIMEOUT_S = 10.0
REPORTED = 75
SNAPSHOT = "task-suite"
TARGET = "policy.internal:8000"


class Own(StrEnum):
    """What a command, or a caller who holds a fork, would make of it in a sound environment."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    SHUT_DOWN = "shut down"
    REPORTED = "reported"
    CRASHED = "crash"
    PANICKED = "panic"
    HUNG = "hang"
    DISK_FULL = "diskfull"
    NO_MEMORY = "oom"
    VICTIM = "victim"
    NO_HOST_MEMORY = "hostoom"
    ENDLESS = "endless"
    BAD_GRADE = "bad grade"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Graded:
    """What a grade makes of a fork by itself: an outcome with its reward, or the kind of failure that it is."""

    script: str
    outcome: Own
    reward: float | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Life:
    """One command's life by itself; `exit_code` where it ends by itself, `grade` where one follows it."""

    own: Own
    script: str
    exit_code: int | None = None
    grade: Graded | None = None

    @property
    def env(self) -> tuple[tuple[str, str], ...]:
        """The variables that its group's commands are made of."""
        grade = () if self.grade is None else (("GRADE", self.grade.script),)
        return (("LIFE", self.script), *grade)


@dataclass(frozen=True, slots=True)
class Hold:
    """What a caller does with each fork that he holds: commands one after another, then a release, or nothing."""

    commands: tuple[Life, ...]
    releases: bool
    passed: bool | None
    reward: float | None


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run and what its caller does. `lives` is by fork index; of held forks it is `holds`."""

    spec: RunSpec
    lives: tuple[Life, ...] = ()
    holds: tuple[Hold, ...] = ()
    cancel_after_s: float | None = None
    short_of_money: bool = False


def draw(chance: random.Random, count: int) -> RunPlan:
    """A run of about so many forks."""
    kind = chance.choices(("plain", "graded", "held", "short"), (55, 15, 20, 10))[0]
    if kind == "held":
        return _held(chance, count)
    if kind == "short":
        return _short(chance, min(count, 8))
    return _plain(chance, count, graded=kind == "graded")


def draw_commands(chance: random.Random, count: int) -> RunPlan:
    """A run of commands that end by themselves, one after another on forks that are held, or each on its own."""
    sizes = _sizes(chance, count)
    if chance.random() < 0.5:
        hold = Hold(tuple(_command(chance) for _ in range(8)), True, True, None)
        spec = RunSpec(
            (Group(SNAPSHOT, count),), 100_000_000, hold_ns=600 * 10**9, verify_each=False
        )
        return RunPlan(spec, holds=(hold,) * count)
    drawn = [_command(chance) for _ in sizes]
    groups = tuple(
        Group(SNAPSHOT, size, env=life.env) for size, life in zip(sizes, drawn, strict=True)
    )
    spec = RunSpec(groups, 100_000_000, exec=sim("$LIFE", TIMEOUT_S), verify_each=False)
    lives = tuple(life for size, life in zip(sizes, drawn, strict=True) for _ in range(size))
    return RunPlan(spec, lives)


def _plain(chance: random.Random, count: int, *, graded: bool) -> RunPlan:
    sizes = _sizes(chance, count)
    drawn = [_graded(chance, _life(chance)) if graded else _life(chance) for _ in sizes]
    groups = tuple(
        Group(SNAPSHOT, size, key=f"group-{number}", env=life.env)
        for number, (size, life) in enumerate(zip(sizes, drawn, strict=True))
    )
    spec = replace(
        _spec(chance, groups),
        exec=sim("$LIFE", TIMEOUT_S, (REPORTED,) if chance.random() < 0.7 else ()),
        grade=sim("$GRADE", GRADE_TIMEOUT_S) if graded else None,
    )
    lives = tuple(life for size, life in zip(sizes, drawn, strict=True) for _ in range(size))
    cancelled = chance.random() < 0.08
    return RunPlan(spec, lives, cancel_after_s=chance.uniform(0, 40) if cancelled else None)


def _held(chance: random.Random, count: int) -> RunPlan:
    count = max(1, count // 2)
    hold_ns = int(chance.uniform(20, 60) * 1e9)
    spec = replace(_spec(chance, (Group(SNAPSHOT, count),)), hold_ns=hold_ns)
    cancelled = chance.random() < 0.08
    return RunPlan(
        spec,
        holds=tuple(_hold(chance) for _ in range(count)),
        cancel_after_s=chance.uniform(0, 40) if cancelled else None,
    )


def _short(chance: random.Random, count: int) -> RunPlan:
    """Commands that end with their money only, and some that end before."""
    sizes = (max(1, count // 2), max(1, count // 2))
    drawn = (Life(Own.ENDLESS, "5000s"), Life(Own.PASSED, "3s print done exit 0", 0))
    groups = tuple(
        Group(SNAPSHOT, size, key=life.own.value, env=life.env)
        for size, life in zip(sizes, drawn, strict=True)
    )
    spec = replace(
        _spec(chance, groups),
        # the smallest that is accepted is 900 for each: 30 s to restore, 30 s of own test, 30 s of work
        cap_micros=sum(sizes) * chance.randint(900, 1300),
        exec=sim("$LIFE", 9000),
        environment_retries=chance.choice((0, 1)),
    )
    lives = tuple(life for size, life in zip(sizes, drawn, strict=True) for _ in range(size))
    return RunPlan(spec, lives, short_of_money=True)


def _spec(chance: random.Random, groups: tuple[Group, ...]) -> RunSpec:
    """What every kind of run is drawn with."""
    return RunSpec(
        groups,
        cap_micros=100_000_000,
        verify_each=chance.random() < 0.4,
        environment_retries=chance.choice((0, 1, 2, 2, 2)),
        rerun_started=chance.random() < 0.15,
        guest_faults=GuestFaults.TASK if chance.random() < 0.3 else GuestFaults.ENVIRONMENT,
        egress=(TARGET,) if chance.random() < 0.5 else (),
        queue_timeout_ns=int(chance.choice((45, 3600, 3600)) * 1e9),
        keep_failed=2 if chance.random() < 0.1 else 0,
        stop_when=StopWhen(0.3) if chance.random() < 0.1 else None,
    )


def _sizes(chance: random.Random, count: int) -> list[int]:
    sizes = []
    while count > 0:
        sizes.append(min(count, chance.randint(1, 8)))
        count -= sizes[-1]
    return sizes


def _life(chance: random.Random) -> Life:
    seconds, code = round(chance.uniform(0.2, 8), 1), chance.randint(1, 60)
    signal = chance.choice((6, 9, 11))
    return chance.choices(
        (
            Life(Own.PASSED, f"{seconds}s print done exit 0", 0),
            Life(Own.FAILED, f"{seconds}s error no exit {code}", code),
            Life(Own.FAILED, f"{seconds}s signal {signal}"),
            Life(Own.TIMED_OUT, f"print started {TIMEOUT_S * 2}s"),
            Life(Own.SHUT_DOWN, f"{seconds}s poweroff"),
            Life(Own.REPORTED, f"{seconds}s exit {REPORTED}", REPORTED),
            Life(Own.CRASHED, f"{seconds}s crash"),
            Life(Own.PANICKED, f"{seconds}s panic"),
            Life(Own.HUNG, f"{seconds}s hang"),
            Life(Own.DISK_FULL, f"{seconds}s diskfull"),
            Life(Own.NO_MEMORY, f"{seconds}s oom"),
            Life(Own.VICTIM, f"{seconds}s victim exit {code}", code),
            Life(Own.NO_HOST_MEMORY, f"{seconds}s hostoom"),
        ),
        (40, 22, 5, 8, 4, 6, 4, 4, 4, 3, 2, 2, 2),
    )[0]


def _graded(chance: random.Random, life: Life) -> Life:
    seconds, code = round(chance.uniform(0.2, 4), 1), chance.randint(1, 60)
    reward = round(chance.uniform(-1, 1), 3)
    told = f"""result '{{"reward": {reward}}}'"""
    nan, invalid = """result '{"reward": NaN}'""", """result '{"valid": false}'"""
    grade = chance.choices(
        (
            Graded(f"{seconds}s", Own.PASSED, 1.0),
            Graded(f"{seconds}s exit {code}", Own.FAILED, 0.0),
            Graded(f"{seconds}s {told}", Own.PASSED, reward),
            Graded(f"{seconds}s {told} exit {code}", Own.FAILED, reward),
            Graded(f"{seconds}s {nan}", Own.BAD_GRADE, kind="own_test_failed"),
            Graded(f"{seconds}s {invalid}", Own.BAD_GRADE, kind="reported_by_command"),
            Graded(f"{seconds}s exit 137", Own.BAD_GRADE, kind="own_test_failed"),
            Graded("100s", Own.BAD_GRADE, kind="own_test_failed"),
            Graded(f"{seconds}s crash", Own.BAD_GRADE, kind="guest_lost"),
        ),
        (20, 15, 20, 10, 5, 5, 5, 3, 3),
    )[0]
    return replace(life, grade=grade)


def _hold(chance: random.Random) -> Hold:
    commands = tuple(_command(chance) for _ in range(chance.randint(0, 3)))
    passed = chance.choice((True, False, None))
    reward = round(chance.random(), 3) if chance.random() < 0.3 else None
    return Hold(commands, chance.random() < 0.8, passed, reward)


def _command(chance: random.Random) -> Life:
    seconds, code = round(chance.uniform(0, 4), 1), chance.randint(0, 60)
    if chance.random() < 0.1:
        return Life(Own.TIMED_OUT, "100s")
    own = Own.PASSED if code == 0 else Own.FAILED
    return Life(own, f"{seconds}s print out exit {code}", code)


def sim(text: str, timeout_s: float, codes: tuple[int, ...] = ()) -> ExecSpec:
    """A command of a fake machine."""
    return ExecSpec(
        ("/bin/sh", "-c", f"sim: {text}"),
        timeout_ns=int(timeout_s * 1e9),
        environment_exit_codes=codes,
    )
