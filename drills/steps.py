"""What a drill that plays a story finds and how it tells it; the small steps that it takes, and how it waits."""

from __future__ import annotations

import json
import shlex
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from promigence import Promigence

STEP_S = 240.0
LOOK_S = 0.3

T = TypeVar("T")


@dataclass(slots=True)
class Found:
    """Figures, and everything that was not as it should be."""

    figures: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def expect(self, what: str, seen: object, wanted: object) -> None:
        """What was seen of it is a figure, and what was not wanted is wrong."""
        self.figures[what.replace(" ", "_")] = seen
        if seen != wanted:
            self.wrong.append(f"{what}: {seen!r} instead of {wanted!r}")

    def tell(self, logs: Path, *, as_json: bool) -> None:
        """On standard output as JSON; what is wrong on standard error too, with where the logs are."""
        for wrong in self.wrong:
            print(wrong, file=sys.stderr)
        whole = {**self.figures, "wrong": self.wrong}
        print(json.dumps(whole, indent=None if as_json else 2))
        if self.wrong:
            print(f"logs: {logs}", file=sys.stderr)


def until(look: Callable[[], T | None], within_s: float, what: str) -> T:
    """What it finds, as soon as that is true. Raises TimeoutError that names what was waited for."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        found = look()
        if found:
            return found
        time.sleep(LOOK_S)
    raise TimeoutError(f"not within {within_s:g} s: {what}")


def written_env(directory: Path) -> dict[str, str]:
    """What a stack wrote for its clients."""
    lines = (line.partition("=") for line in (directory / "env").read_text().splitlines())
    return {name: "".join(shlex.split(value)) for name, _, value in lines}


def step(client: Promigence, snapshot: str) -> tuple[int, str]:
    """A step of two forks that do nothing: how many passed, and the run's id."""
    run = client.runs.start(
        snapshot, count=2, spend_cap=1.0, exec={"sh": "exit 0"}, verify_each=False
    )
    report = client.runs.wait(run["run_id"], timeout=STEP_S)
    return report["totals"]["passed"], run["run_id"]


def ready(client: Promigence, run_id: str) -> str | None:
    """The fork of a run of one, once it is held."""
    (fork,) = client.runs.forks(run_id)
    return fork["fork_id"] if fork["state"] == "ready" else None


def states(client: Promigence, run_id: str) -> list[str]:
    return [str(fork["state"]) for fork in client.runs.forks(run_id)]


def free_port() -> int:
    """One of 127.0.0.1 that nobody has at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
