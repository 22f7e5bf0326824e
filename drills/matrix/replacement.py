"""Cases of replacement: which failed machine gets a successor, how often, and what both cost."""

from __future__ import annotations

import signal

from drills.matrix.case import SERVICED, Case, Terms, breaks, passes
from drills.matrix.scene import Scene

RERUN = Terms(environment_retries=2, rerun_started=True)


def kill_first_in_hook(scene: Scene) -> None:
    """Kill the fork's first machine while its hook runs: before any intent."""
    machine = scene.machine()
    scene.until(lambda: scene.fork()["state"] == "checking", "the fork behind its barrier")
    machine.signal(signal.SIGKILL)


def kill_first_at_work(scene: Scene) -> None:
    """Kill the fork's first machine while its command runs."""
    scene.running().signal(signal.SIGKILL)


CASES = (
    Case(
        name="replaced-before-intent",
        shows="a machine is killed before its command was intended; another takes its place",
        hook="sleep 4",
        cause=kill_first_in_hook,
        terms=SERVICED,
        expect=passes(attempts=2, failed=("guest_lost",)),
        quick=True,
    ),
    Case(
        name="replaced-until-none-is-left",
        shows="every machine of a fork fails, two replacements are allowed",
        hook="exit 1",
        terms=SERVICED,
        expect=breaks(
            "barrier_failed",
            "barrier",
            attempts=3,
            failed=("barrier_failed",) * 3,
            retryable=True,
        ),
        quick=True,
    ),
    Case(
        name="never-replaced",
        shows="the same, with no replacement allowed",
        hook="exit 1",
        expect=breaks("barrier_failed", "barrier"),
    ),
    Case(
        name="started-and-not-rerun",
        shows="a machine is killed while its command runs; nothing runs twice by itself",
        command="sleep 8",
        cause=kill_first_at_work,
        terms=SERVICED,
        expect=breaks("guest_lost", "exec", task_may_have_caused=True),
        quick=True,
    ),
    Case(
        name="started-and-rerun",
        shows="the same, in a run whose caller allows it",
        command="sleep 8",
        cause=kill_first_at_work,
        terms=RERUN,
        expect=passes(attempts=2, failed=("guest_lost",)),
        quick=True,
    ),
)
