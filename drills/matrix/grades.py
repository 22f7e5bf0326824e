"""Cases of the second command, which decides: a failed grader is no zero, and what is graded cannot write the grade."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from drills.matrix.case import Case, Fact, Terms, breaks, equals, fails, passes, says, there
from drills.matrix.scene import Scene
from drills.matrix.workers import until_siblings

GRADED = Terms(grade=True, grade_timeout_s=8.0, timeout_s=8.0)
# For agents that are root: what they break of their machine is theirs, a grader that fails is nobody's zero even so.
STRICT = replace(GRADED, guest_faults="task")
BY_OTHER = replace(GRADED, user="4242", grade_user="4243")
REQUIRED = replace(GRADED, grade_result_required=True)
# Of a short limit, a busy host takes its tenth while the grader starts, and that would be another case.
HANGS = replace(GRADED, grade_timeout_s=15.0)
# A worker that is killed is followed by another within seconds.
PATIENT = replace(GRADED, grade_timeout_s=30.0, timeout_s=30.0)

SAY = """printf '%s' '{}' >"$PROMIGENCE_RESULT" """
HALF = SAY.format('{"reward": 0.5}')
# Whatever lies where grades write, again and again, until somebody ends it.
FORGE = (
    """forge() {{ for d in /run/promigence/results /run/promigence/results/*; do """
    """echo '{{"reward": 1.0}}' >$d/result.json; done 2>/dev/null; }}; {}"""
)


def _breaks(
    name: str,
    shows: str,
    grade: str,
    kind: str,
    *evidence: Fact,
    terms: Terms = GRADED,
    quick: bool = False,
    timed: bool = False,
) -> Case:
    """A grade that says nothing of its task, whose own command ended with 1."""
    blamed = kind in ("own_test_failed", "guest_panicked", "guest_lost")
    return Case(
        name=name,
        shows=shows,
        command="exit 1",
        grade=grade,
        terms=terms,
        expect=breaks(kind, "grade", *evidence, task_may_have_caused=blamed),
        quick=quick,
        timed=timed,
    )


def kill_worker_in_grade(scene: Scene) -> None:
    """While the fork's grade runs, which then writes its result with nobody there to hear its end."""
    until_siblings(scene, "running", "ended")
    scene.running(purpose="grade")
    os.kill(scene.part("worker"), signal.SIGKILL)


CASES = (
    _breaks(
        "grade-crashes",
        "the grader is ended by a signal",
        "kill -SEGV $$",
        "own_test_failed",
        equals("signal", 11),
        quick=True,
    ),
    _breaks(
        "grade-not-there",
        "the grader's program is not there",
        "/no/such/grader",
        "own_test_failed",
        equals("exit_code", 127),
        quick=True,
    ),
    _breaks(
        "grade-crashes-strict",
        "the grader crashes in a run in which guest faults are the task's",
        "exit 139",
        "own_test_failed",
        equals("exit_code", 139),
        terms=STRICT,
    ),
    _breaks(
        "grade-hangs",
        "the grader has written a reward and does not end",
        HALF + "; sleep 100",
        "own_test_failed",
        equals("timed_out", value=True),
        quick=True,
        terms=HANGS,
        timed=True,
    ),
    _breaks(
        "grade-nan",
        "the reward is NaN",
        SAY.format('{"reward": NaN}'),
        "own_test_failed",
        says("result", "NaN"),
        quick=True,
    ),
    _breaks(
        "grade-garbage",
        "the result is not JSON",
        'head -c 3000 /dev/urandom >"$PROMIGENCE_RESULT"',
        "own_test_failed",
        there("result"),
    ),
    _breaks(
        "grade-too-large",
        "the result has more than 64 KiB",
        'head -c 70000 /dev/zero >"$PROMIGENCE_RESULT"',
        "own_test_failed",
        equals("exit_code", 0),
    ),
    _breaks(
        "grade-a-link",
        "the result is a link to another file",
        'echo \'{"reward": 1.0}\' >/tmp/r; ln -s /tmp/r "$PROMIGENCE_RESULT"',
        "own_test_failed",
        equals("exit_code", 0),
        quick=True,
    ),
    _breaks(
        "grade-missing",
        "a grader that must write its result ends with 1 and has written none",
        "exit 1",
        "own_test_failed",
        equals("exit_code", 1),
        terms=REQUIRED,
    ),
    _breaks(
        "grade-not-valid",
        "the grader says that this sample is not valid, and why",
        SAY.format('{"valid": false, "reason": "no judge"}'),
        "reported_by_command",
        says("reason", "no judge"),
        quick=True,
    ),
    _breaks(
        "grade-panics",
        "the machine panics under its grader",
        "echo c >/proc/sysrq-trigger; sleep 100",
        "guest_panicked",
        says("monitor_events", "GUEST_PANICKED"),
    ),
    _breaks(
        "grade-powers-off",
        "the machine is shut down under its grader",
        "busybox poweroff -f 2>/dev/null || echo o >/proc/sysrq-trigger; sleep 100",
        "guest_lost",
        equals("death_cause", "shutdown"),
    ),
    Case(
        name="grade-rewards",
        shows="the grader says half a reward of a command that failed",
        command="exit 9",
        grade=HALF,
        terms=GRADED,
        expect=passes(reward=0.5, exit_code=9),
        quick=True,
    ),
    Case(
        name="grade-after-timeout",
        shows="the command runs out of time, and its grader says what it was worth",
        command="sleep 100",
        grade=HALF + "; exit 1",
        terms=GRADED,
        expect=fails(reward=0.5),
        quick=True,
        timed=True,
    ),
    Case(
        name="grade-worker-killed",
        shows="the worker is killed while a grade runs; the next one reads what it wrote, and starts it no second time",
        command="sleep 6; exit 9",
        grade=f"echo once >>/tmp/began; sleep 6; test $(wc -l </tmp/began) = 1 && {HALF}",
        terms=PATIENT,
        cause=kill_worker_in_grade,
        expect=passes(reward=0.5, exit_code=9),
        alone=True,
        siblings_s=12.0,
    ),
    Case(
        name="grade-forged",
        shows="the command writes rewards wherever a grader might, and leaves a daemon that goes on doing so",
        command=FORGE.format("forge; while :; do forge; sleep 0.05; done & sleep 0.5; exit 0"),
        grade="sleep 1; exit 3",
        terms=GRADED,
        expect=fails(0, reward=0.0),
        quick=True,
    ),
    Case(
        name="grade-by-another",
        shows="the command and its grader are two users: the one forges, the other's word counts",
        command=FORGE.format("forge; while :; do forge; sleep 0.05; done & sleep 0.5; exit 0"),
        grade=f"test $(id -u) = 4243 && {HALF}; sleep 1; exit 1",
        terms=BY_OTHER,
        expect=fails(0, reward=0.5),
    ),
)
