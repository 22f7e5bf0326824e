"""What each bell means to a worker process of an episode: the same calls that `workers/tasks.py` makes."""

from __future__ import annotations

from collections.abc import Callable

from app.flow import collect, fork, mount, place, stop, template, verify
from app.flow import exec as held_exec
from drills.chaos.process import Process

FORKS_A_BELL = 4


def _bring_up(process: Process, _: str) -> None:
    if process.draining:
        return
    for _number in range(FORKS_A_BELL):
        if not fork.advance(process.ports, process.host):
            _mount(process)
            return


def _mount(process: Process) -> None:
    """In a worker this is a thread of its own, and no task waits for it."""
    for bundle_id in mount.due(process.ports, process.host):
        mount.mount(process.ports, process.host, bundle_id)


def _collect(process: Process, _: str, name: str) -> None:
    ports, host = process.ports, process.host
    process.turns.take(name, "collect", lambda: collect.collect(ports, host, name))


def _stop(process: Process, _: str, name: str) -> None:
    ports, host = process.ports, process.host
    process.turns.take(name, "stop", lambda: stop.stop(ports, host, name))


TASKS: dict[str, Callable[..., object]] = {
    "place": lambda process: place.place(process.ports),
    "fork": _bring_up,
    "build": lambda process, _, build_id: template.advance(process.ports, process.host, build_id),
    "verify": lambda process, _, build_id: verify.verify(process.ports, process.host, build_id),
    "exec": lambda process, _, exec_id: held_exec.start(process.ports, process.host, exec_id),
    "collect": _collect,
    "stop": _stop,
}
