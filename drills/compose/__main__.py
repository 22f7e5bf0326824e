"""`make compose-smoke`: docker-compose.yml on a Docker engine, the demo's job through it, and what outlives what.

    python -m drills.compose [--build] [--only job] [--only worker_killed ...] [--json]

Exit status 0 when every claim of the demo held, machines outlived their workers, rows told of those that did not
outlive their container, nothing was shown or reached that should not be, and nothing is left; else 1, each thing that
is wrong is told on standard error. Needs a Docker engine with its client, and its images: `--build` builds ours anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from demo.environment import prepare
from demo.job import Job, Story
from demo.policy import serving
from demo.stack import Stack
from demo.view import View
from drills.compose import exposed, outlive
from drills.compose.engine import COMPOSE, UP_WITHIN_S, Deployment, left, prepared
from drills.leavings import settled
from drills.program import completed
from drills.rig import smallest
from promigence import Promigence

DIRECTORY = Path(".promigence/compose")
GONE_WITHIN_S = 30.0
SCENES = {
    "worker_killed": outlive.worker_killed,
    "worker_replaced": outlive.worker_replaced,
    "container_killed": outlive.container_killed,
    "container_stopped": outlive.container_stopped,
}
JOB = "job"
PLAYS = (JOB, *SCENES)


@dataclass(frozen=True, slots=True)
class InContainer(Stack):
    """The demo's stack, whose machines are processes of a container."""

    here: Deployment

    def kill_machine_of(self, fork_id: str) -> int:
        """Raises LookupError when no live machine is this fork's."""
        for machine in self.here.server("host", "machines"):
            if machine["fork_id"] == fork_id:
                self.here.inside("host", "sh", "-c", f"kill -KILL {machine['pid']}")
                return int(machine["pid"])
        raise LookupError(f"fork {fork_id} has no live machine")


def main() -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(prog="drills.compose", description="docker-compose.yml")
    parser.add_argument("--build", action="store_true", help="build our images anew")
    parser.add_argument("--only", action="append", choices=PLAYS, help="of all of them, these")
    parser.add_argument("--json", action="store_true", help="standard output is one JSON line")
    given = parser.parse_args()
    console = Console(stderr=True, soft_wrap=True)
    began = time.monotonic()
    chosen = tuple(given.only or PLAYS)
    told = completed(lambda: _smoke(console, chosen, build=given.build), DIRECTORY, console)
    told["timings"]["total"] = round(time.monotonic() - began, 1)
    for said in told["wrong"]:
        console.print(f"[red]{escape(said)}[/red]", highlight=False)
    console.print(f"{len(told['wrong'])} wrong; {told['timings']['total']:.0f} s", highlight=False)
    if given.json:
        print(json.dumps(told))
    return 1 if told["wrong"] else 0


def _smoke(console: Console, chosen: tuple[str, ...], *, build: bool) -> dict[str, Any]:
    timings: dict[str, float] = {}
    with prepared(build=build) as here:
        try:
            told = _played(here, View(console), chosen, timings)
        except (TimeoutError, subprocess.SubprocessError):
            _keep_logs(here)
            raise
        containers = here.compose("ps", "--all", "--quiet", "--no-trunc").split()
        if told["wrong"]:
            _keep_logs(here)
        with _timed(timings, "down"):
            here.compose("down", "--volumes", within_s=180.0)
        remains = settled(lambda: left(here, containers), GONE_WITHIN_S)
    told["wrong"] += [f"left: {each}" for each in remains]
    return {**told, "timings": {name: round(took, 1) for name, took in timings.items()}}


def _played(
    here: Deployment, view: View, chosen: tuple[str, ...], timings: dict[str, float]
) -> dict[str, Any]:
    hidden = (prepare() / "hidden" / "test_hidden.py").read_text()
    told: dict[str, Any] = {"wrong": []}
    with serving(hidden, host=here.gateway("machines")) as policy:
        here.environment["PROMIGENCE_EGRESS_ALLOW"] = json.dumps([policy.address])
        with _timed(timings, "up"):
            here.compose("up", "--detach", "--no-build", "--wait", within_s=UP_WITHIN_S)
        view.say(f"every service is healthy: {', '.join(_services(here))}")
        with here.client() as client:
            if JOB in chosen:
                with _timed(timings, JOB):
                    story = Job(InContainer(DIRECTORY, client, here), policy, view, timings).run()
                told |= _of(story)
            _scenes(here, client, view, [each for each in SCENES if each in chosen], told, timings)
    told["wrong"] += [*exposed.reachable(here), *exposed.secrets_shown(here)]
    return told


def _scenes(
    here: Deployment,
    client: Promigence,
    view: View,
    names: list[str],
    told: dict[str, Any],
    timings: dict[str, float],
) -> None:
    """Played one after another into `told`, with machines of the smallest kind."""
    if names:
        client.snapshots.build(smallest(outlive.SNAPSHOT), timeout=outlive.FINAL_WITHIN_S)
    for name in names:
        with _timed(timings, name):
            seen = SCENES[name](here, client)
        view.say(f"{name.replace('_', ' ')}: {seen.facts}")
        told[name] = seen.facts
        told["wrong"] += seen.wrong


def _of(story: Story) -> dict[str, Any]:
    host = {name: story.host[name] for name in ("accelerator", "slots", "memory_mib", "missing")}
    return {
        "host": host,
        "totals": story.report["totals"],
        "cost": story.report["cost"],
        "capped_totals": story.capped_report["totals"],
        "refused": story.refused_snapshot["code"],
        "wrong": story.wrong,
    }


def _services(here: Deployment) -> list[str]:
    said = here.compose("ps", "--format", "json").splitlines()
    return sorted(json.loads(line)["Service"] for line in said)


def _keep_logs(here: Deployment) -> None:
    kept = Path(".promigence/log/compose")
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "compose.log").write_text(here.compose("logs", "--no-color", "--timestamps"))


@contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    timings[name] = time.monotonic() - started


if __name__ == "__main__":
    sys.exit(main() if COMPOSE.exists() else "no docker-compose beside this Python: make venv")
