"""Many cases in one run of the stack: which go together, how they are started, broken, waited for and judged."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from drills.matrix.case import PLAIN, Case, Expect, Terms
from drills.matrix.judge import HELD_SIBLINGS, SIBLINGS, seen_of, wrong_forks, wrong_run
from drills.matrix.scene import NotCaused, Scene
from drills.rig import Rig
from drills.rows import account_of
from drills.watch import Watch
from promigence import PromigenceError
from promigence.types import Exec, GradeExec, Group, Report, StartTerms

SIBLING = "sibling"
SIBLING_CODES = (0, 3)
# For a cause to see that the run is over, and for the API after a fault that took it along.
JOINED_WITHIN_S = 30.0
_LOOK_S = 0.25
_ENDED = "SELECT fork_id, key, (ended_ns - queued_ns) / 1e9 AS seconds FROM fork WHERE run_id = %s"
_FINAL = "SELECT 1 FROM run WHERE run_id = %s AND state = 'ended'"


@dataclass(frozen=True, slots=True)
class Batch:
    """Cases that share one run; all have the same terms."""

    cases: tuple[Case, ...]

    @property
    def terms(self) -> Terms:
        return self.cases[0].terms

    @property
    def siblings(self) -> bool:
        return all(case.siblings for case in self.cases)

    @property
    def within_s(self) -> float:
        return max(case.within_s for case in self.cases)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One case as it was: what of it is not as expected, and whether its fault came about at all.

    `seconds` is what its slowest fork took, from the run's start.
    """

    case: Case
    wrong: tuple[str, ...] = ()
    uncaused: str | None = None
    seconds: float = 0.0

    @property
    def held(self) -> bool:
        return not self.wrong and self.uncaused is None


@dataclass(frozen=True, slots=True)
class Played:
    """One run: a verdict a case, what befell its healthy siblings, and which laws of money did not hold."""

    verdicts: tuple[Verdict, ...]
    harmed: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()


# Runs one after another; what a wave has of them is played side by side.
Track = list[Batch]


def waves(cases: Sequence[Case]) -> list[list[Track]]:
    """What is played at the same time: all quiet cases, then all loud ones beside the lanes; then run by run the timed
    ones, and each that is alone. Cases with equal terms share a run, but for those of a lane.
    """
    shared = [case for case in cases if not (case.alone or case.lane)]
    timed = _by_terms(case for case in shared if case.timed)
    rest = [case for case in shared if not case.timed]
    quiet = [[batch] for batch in _by_terms(case for case in rest if not case.loud)]
    loud = [[batch] for batch in _by_terms(case for case in rest if case.loud)]
    names = dict.fromkeys(case.lane for case in cases if case.lane and not case.alone)
    lanes = [[Batch((case,)) for case in cases if case.lane == name] for name in names]
    alone = [Batch((case,)) for case in cases if case.alone]
    together = [wave for wave in (quiet, loud + lanes) if wave]
    return together + [[[batch]] for batch in (*timed, *alone)]


def play(
    rig: Rig, watch: Watch, servers: Mapping[str, str], batch: Batch, over: threading.Event
) -> Played:
    """One run from its start to its judgement. `over` ends it early, judged as it then stands.

    Raises PromigenceError when the stack does not take the run, or never answers again.
    """
    scenes = {case.name: Scene(rig, watch, case.name) for case in batch.cases}
    with contextlib.ExitStack() as stack:
        for case in batch.cases:
            if case.around is not None:
                stack.enter_context(case.around(scenes[case.name]))
        run_id = rig.client.runs.start(_groups(batch, servers), **_terms(batch.terms, servers))[
            "run_id"
        ]
        for scene in scenes.values():
            scene.run_id = run_id
        with _causing(rig, batch, scenes, run_id) as uncaused:
            unfinished = _unfinished(rig, run_id, batch.within_s, over)
        if unfinished:
            rig.client.runs.cancel(run_id)
        return _judged(rig, batch, scenes, uncaused, unfinished, run_id)


def _by_terms(cases: Iterable[Case]) -> list[Batch]:
    found: dict[Terms, list[Case]] = {}
    for case in cases:
        found.setdefault(case.terms, []).append(case)
    return [Batch(tuple(together)) for together in found.values()]


def _groups(batch: Batch, servers: Mapping[str, str]) -> list[Group]:
    """Each case's forks, then the siblings, which fork what the first case forks that has no template of its own."""
    siblings_s = max(case.siblings_s for case in batch.cases)
    sound = [case.template for case in batch.cases if not case.template.doomed] or [PLAIN]
    template = min(sound, key=lambda each: len(each.name))
    groups = [
        Group(
            snapshot=case.template.name,
            count=len(case.expected),
            key=case.name,
            env={
                "COMMAND": case.command,
                "HOOK": case.hook,
                "TEST": case.test,
                "GRADE": case.grade,
                **(servers if case.terms.egress else {}),
                **case.env,
            },
        )
        for case in batch.cases
    ]
    for code in SIBLING_CODES if batch.siblings else ():
        command = f"sleep {siblings_s}; exit {code}"
        told = f'echo \'{{"reward": {int(not code)}}}\' >"$PROMIGENCE_RESULT"'
        env = {"COMMAND": command, "GRADE": f"{told}; exit {code}"}
        groups.append(Group(snapshot=template.name, count=1, key=SIBLING, env=env))
    return groups


def _terms(terms: Terms, servers: Mapping[str, str]) -> StartTerms:
    given: StartTerms = {
        "spend_cap": terms.spend_cap_usd,
        "verify_each": terms.verify_each,
        "environment_retries": terms.environment_retries,
        "rerun_started": terms.rerun_started,
        "guest_faults": terms.guest_faults,
        "egress": sorted(servers.values()) if terms.egress else [],
        "labels": {"drill": "matrix"},
    }
    if terms.queue_timeout_s is not None:
        given["queue_timeout_seconds"] = terms.queue_timeout_s
    if terms.hold_s is not None:
        return {**given, "hold_seconds": terms.hold_s}
    if terms.grade:
        given["grade"] = _grade(terms)
    return {**given, "exec": _command(terms)}


def _grade(terms: Terms) -> GradeExec:
    grade: GradeExec = {
        "sh": 'eval "$GRADE"',
        "timeout_seconds": terms.grade_timeout_s,
        "result_required": terms.grade_result_required,
    }
    if terms.grade_user is not None:
        grade["user"] = terms.grade_user
    return grade


def _command(terms: Terms) -> Exec:
    command: Exec = {
        "sh": 'eval "$COMMAND"',
        "timeout_seconds": terms.timeout_s,
        "environment_exit_codes": list(terms.environment_exit_codes),
    }
    if terms.cwd is not None:
        command["cwd"] = terms.cwd
    if terms.user is not None:
        command["user"] = terms.user
    return command


@contextlib.contextmanager
def _causing(
    rig: Rig, batch: Batch, scenes: Mapping[str, Scene], run_id: str
) -> Iterator[dict[str, str]]:
    """Causes at work while the block runs, each in a thread; what did not come about, by case, filled in as it ends."""
    uncaused: dict[str, str] = {}

    def cause(case: Case) -> None:
        try:
            if case.cause is not None:
                case.cause(scenes[case.name])
        except NotCaused as error:
            uncaused[case.name] = str(error)
        except (OSError, LookupError, PromigenceError) as error:
            # What a cause reaches for may be gone: a process, a file, a row, the stack's answer.
            uncaused[case.name] = f"{type(error).__name__}: {error}"

    threads = {case.name: threading.Thread(target=cause, args=(case,)) for case in batch.cases}
    if batch.terms.hold_s is not None:
        threads[SIBLING] = threading.Thread(target=_release_siblings, args=(rig, run_id, batch))
    for thread in threads.values():
        thread.start()
    try:
        yield uncaused
    finally:
        for scene in scenes.values():
            scene.over.set()
        for name, thread in threads.items():
            thread.join(JOINED_WITHIN_S)
            if thread.is_alive():
                uncaused[name] = "its cause did not end with its run"


def _release_siblings(rig: Rig, run_id: str, batch: Batch) -> None:
    """What a trainer does with the two held siblings. Its failing shows as their outcome."""
    siblings_s = max(case.siblings_s for case in batch.cases)
    forks = [fork for fork in rig.client.runs.forks(run_id) if fork["key"] == SIBLING]
    for fork, code in zip(forks, SIBLING_CODES, strict=True):
        with contextlib.suppress(PromigenceError):
            command: Exec = {"sh": f"sleep {siblings_s}; exit {code}"}
            ended = rig.client.forks.exec(fork["fork_id"], command)
            rig.client.forks.release(fork["fork_id"], passed=ended["exit_code"] == 0)


def _unfinished(rig: Rig, run_id: str, within_s: float, over: threading.Event) -> str | None:
    """Wait for the run's end, by its row: whatever is broken, the drill sees it. What is not, when time is up."""
    until = time.monotonic() + within_s
    while not rig.postgres.rows(_FINAL, run_id):
        if time.monotonic() > until:
            return f"{run_id} is not final after {within_s:.0f} s"
        if over.wait(_LOOK_S):
            return "interrupted"
    return None


def _judged(
    rig: Rig,
    batch: Batch,
    scenes: Mapping[str, Scene],
    uncaused: Mapping[str, str],
    unfinished: str | None,
    run_id: str,
) -> Played:
    report, account = rig.client.runs.report(run_id), account_of(rig.postgres, run_id)
    seconds = {row["key"]: float(row["seconds"] or 0) for row in rig.postgres.rows(_ENDED, run_id)}
    verdicts = []
    for case in batch.cases:
        seen = seen_of(report, account, case.name)
        lines = wrong_forks(case.expected, seen)
        if case.also is not None:
            lines += case.also(scenes[case.name])
        if unfinished and _pending(report, case.name):
            lines.insert(0, unfinished)
        told = uncaused.get(case.name)
        verdicts.append(Verdict(case, tuple(lines), told, seconds.get(case.name, 0.0)))
    siblings = seen_of(report, account, SIBLING)
    return Played(
        tuple(verdicts),
        tuple(wrong_forks(_siblings_of(batch), siblings)),
        () if unfinished else tuple(wrong_run(report, account)),
    )


def _pending(report: Report, key: str) -> bool:
    return any(fork["key"] == key and fork["outcome"] == "pending" for fork in report["forks"])


def _siblings_of(batch: Batch) -> Sequence[Expect]:
    if not batch.siblings:
        return ()
    return SIBLINGS if batch.terms.hold_s is None else HELD_SIBLINGS
