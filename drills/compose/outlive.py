"""What outlives what: a worker that is killed or replaced leaves its machines to the next; a container ends them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drills.compose.engine import Deployment
from drills.steps import until
from promigence import Promigence
from promigence.types import Failure, Report

SNAPSHOT = "outlive"
FORKS, CAP_USD = 3, 0.5
# Longer than a worker takes to be started again and to adopt what it finds, on two cores that emulate.
BUSY_S = 40
FINAL_WITHIN_S, RUNNING_WITHIN_S, BACK_WITHIN_S, TOLD_WITHIN_S = 240.0, 180.0, 90.0, 180.0
WORD = "collected"


@dataclass(frozen=True, slots=True)
class Seen:
    """`facts` are figures for who reads them; `wrong` has a sentence for each thing that is not as it should be."""

    facts: dict[str, Any]
    wrong: list[str]


def worker_killed(here: Deployment, client: Promigence) -> Seen:
    """SIGKILL to the worker's process, as a crash."""

    def kill(pid: int) -> None:
        here.inside("host", "sh", "-c", f"kill -KILL {pid}")

    return _machines_outlive(here, client, kill, "killed worker")


def worker_replaced(here: Deployment, client: Promigence) -> Seen:
    """A drain, as an upgrade does it: the next worker starts beside the one that ends what it holds."""

    def drain(_pid: int) -> None:
        here.inside("host", "promigence-server", "host", "drain")

    return _machines_outlive(here, client, drain, "drained worker")


def container_killed(here: Deployment, client: Promigence) -> Seen:
    """SIGKILL to the container's first process, with which all of its machines end; then it is started again."""

    def kill() -> None:
        here.docker("kill", here.container("host"))

    # Its keepers went with it, and nobody saw how: it was not done from inside.
    return _rows_say_so(here, client, kill, "killed container", "guest_lost")


def container_stopped(here: Deployment, client: Promigence) -> Seen:
    """`docker compose stop host`: the supervisor ends the machines, and says so before it goes."""

    def stop() -> None:
        here.compose("stop", "host", within_s=120.0)

    return _rows_say_so(here, client, stop, "stopped container", "host_lost")


def _machines_outlive(
    here: Deployment, client: Promigence, end: Callable[[int], None], what: str
) -> Seen:
    run_id = _running(client, f"sleep {BUSY_S}; echo {WORD}")
    before, worker = _machines(here, run_id), _worker(here)
    assert worker is not None
    ended_at = time.monotonic()
    end(worker)
    until(lambda: _worker(here) not in (None, worker), BACK_WITHIN_S, f"{what}: another worker")
    back_s = time.monotonic() - ended_at
    after = _machines(here, run_id)
    report = client.runs.wait(run_id, FINAL_WITHIN_S)
    wrong = [
        *([] if len(before) == FORKS else [f"{what}: {len(before)} machines before, not {FORKS}"]),
        *([] if before == after else [f"{what}: machines were {before}, and are {after}"]),
        *wrong_results(report, what),
    ]
    return Seen({"worker_back_seconds": round(back_s, 1), "machines": len(after)}, wrong)


def _rows_say_so(
    here: Deployment, client: Promigence, end: Callable[[], None], what: str, kind: str
) -> Seen:
    run_id = _running(client, "sleep 3600")
    container = here.container("host")
    began = time.monotonic()
    end()
    down_s = time.monotonic() - began
    here.compose("up", "--detach", "--no-deps", "--no-build", "--wait", "host", within_s=120.0)
    up_s = time.monotonic() - began
    until(lambda: client.runs.report(run_id)["final"], TOLD_WITHIN_S, f"{what}: rows that say so")
    told_s = time.monotonic() - began
    wrong = wrong_losses(client.runs.report(run_id), kind, what)
    if here.container("host") != container:
        wrong.append(f"{what}: another container came back")
    facts = {"down_seconds": down_s, "up_again_seconds": up_s, "rows_final_seconds": told_s}
    return Seen({name: round(value, 1) for name, value in facts.items()}, wrong)


def _running(client: Promigence, command: str) -> str:
    """A run whose commands have all begun."""
    run = client.runs.start(
        SNAPSHOT, count=FORKS, spend_cap=CAP_USD, verify_each=False, exec={"sh": command}
    )
    run_id = run["run_id"]

    def all_run() -> bool:
        return [fork["state"] for fork in client.runs.forks(run_id)] == ["running"] * FORKS

    until(all_run, RUNNING_WITHIN_S, "commands that run")
    return run_id


def wrong_results(report: Report, what: str) -> list[str]:
    wrong = []
    for fork in report["forks"]:
        said = fork["stdout_tail"].strip()
        if fork["outcome"] != "passed" or said != WORD:
            wrong.append(f"{what}: fork {fork['index']} is {fork['outcome']} and said {said!r}")
        if fork["attempts"] != 1:
            wrong.append(f"{what}: fork {fork['index']} took {fork['attempts']} machines")
    return wrong


def wrong_losses(report: Report, kind: str, what: str) -> list[str]:
    """Forks that are not told as lost with their host's container, or are told as the task's doing."""
    wrong = []
    for fork in report["forks"]:
        failure = fork["failure"]
        if fork["outcome"] != "env_failed" or failure is None or failure["kind"] != kind:
            wrong.append(f"{what}: fork {fork['index']} is {fork['outcome']} by {failure}")
        elif fork["reward"] is not None or _is_blamed(failure):
            wrong.append(f"{what}: fork {fork['index']} pays for it: {fork['reward']}, {failure}")
    return wrong


def _is_blamed(failure: Failure) -> bool:
    """Nobody inside kills a machine from outside, whatever its command may have done: see docs/rewards.md."""
    from_outside = failure["evidence"].get("killed_from_outside") is True
    return failure["task_may_have_caused"] and not from_outside


def _machines(here: Deployment, run_id: str) -> dict[str, int]:
    """Process ids in the container, by fork."""
    found = here.server("host", "machines")
    return {each["fork_id"]: each["pid"] for each in found if each["run_id"] == run_id}


def _worker(here: Deployment) -> int | None:
    """The process id of the worker that works; None while none does."""
    parts = {part["name"]: part for part in here.server("host", "status")}
    worker = parts.get("worker")
    return int(worker["pid"]) if worker is not None and worker["ready"] else None
