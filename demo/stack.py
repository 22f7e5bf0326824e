"""A stack of the demo's own, in a folder of its own: a stack that `make up` started is not disturbed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promigence import Promigence

SERVER = Path(sys.executable).with_name("promigence-server")
UP_TIMEOUT_SECONDS = 180
DOWN_TIMEOUT_SECONDS = 120
ASK_TIMEOUT_SECONDS = 30
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack and the client of it."""

    directory: Path
    client: Promigence

    def parts(self) -> list[dict[str, Any]]:
        """Its processes: `name`, `pid`, `ready`."""
        return self._ask("status")

    def kill_machine_of(self, fork_id: str) -> int:
        """Kill this fork's machine from outside, as a crash would; return its pid.

        Raises LookupError when no live machine is this fork's.
        """
        for machine in self._ask("machines"):
            if machine["fork_id"] == fork_id:
                os.kill(machine["pid"], signal.SIGKILL)
                return int(machine["pid"])
        raise LookupError(f"fork {fork_id} has no live machine")

    def _ask(self, what: str) -> list[dict[str, Any]]:
        answer = subprocess.run(
            [*_server(what, self.directory), "--json"],
            stdout=subprocess.PIPE,
            check=True,
            timeout=ASK_TIMEOUT_SECONDS,
        )
        rows: list[dict[str, Any]] = json.loads(answer.stdout)
        return rows


@contextmanager
def running(
    directory: Path, allow: str | None = None, *, environment: Mapping[str, str] | None = None
) -> Iterator[Stack]:
    """Start a fresh stack that may reach `allow` (host:port; None: nothing); stop it, remove its folder in any case.

    `environment` is added to our own. Its logs are kept (`keep_logs`) where the block was left by an error.
    Raises subprocess.CalledProcessError when a part does not become ready (it has said why on standard
    error), BlockingIOError while another one runs in this folder.
    """
    with _alone(directory.parent):
        yield from _running(directory, allow, environment or {})


def start(directory: Path, allow: str | None, environment: Mapping[str, str]) -> None:
    """Start the stack of this folder, with all that it has kept. Raises subprocess.CalledProcessError as `running`."""
    egress = () if allow is None else ("--egress-allow", allow)
    up = (*_server("up", directory), *egress)
    _run(*up, timeout=UP_TIMEOUT_SECONDS, environment=environment)


def stop(directory: Path) -> None:
    """Stop it, and keep what it has stored. Raises subprocess.CalledProcessError when something of it lives on."""
    _run(*_server("down", directory), timeout=DOWN_TIMEOUT_SECONDS)


def client_of(directory: Path) -> Promigence:
    """A client of the stack that runs in this folder now; each start has an address and a key of its own."""
    variables = _variables(directory / "env")
    return Promigence(variables["PROMIGENCE_API_KEY"], variables["PROMIGENCE_BASE_URL"])


def kept_logs(directory: Path) -> Path:
    """Where the logs of a stack are that failed: beside those of set-up."""
    return directory.parent / "log" / directory.name


def keep_logs(directory: Path) -> None:
    """Copy the logs of the stack in this folder to where its end does not remove them (`kept_logs`)."""
    shutil.rmtree(kept_logs(directory), ignore_errors=True)
    if (directory / "logs").exists():
        shutil.copytree(directory / "logs", kept_logs(directory))


def _running(directory: Path, allow: str | None, environment: Mapping[str, str]) -> Iterator[Stack]:
    _remove(directory)  # what a killed demo left
    try:
        start(directory, allow, environment)
        with client_of(directory) as client:
            yield Stack(directory, client)
    except Exception:
        keep_logs(directory)  # the reason may stand there
        raise
    finally:
        with uninterrupted():
            _remove(directory)


def _remove(directory: Path) -> None:
    if directory.exists():
        _run(*_server("down", directory), "--wipe", timeout=DOWN_TIMEOUT_SECONDS)
        shutil.rmtree(directory)


def _server(verb: str, directory: Path) -> tuple[str, ...]:
    return (str(SERVER), verb, "--dir", str(directory))


def _run(*argv: str, timeout: float, environment: Mapping[str, str] | None = None) -> None:
    # What they say is for people: standard output is the demo's alone.
    env = {**os.environ, **(environment or {})}
    subprocess.run(argv, stdout=sys.stderr, env=env, check=True, timeout=timeout)


def _variables(file: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in file.read_text().splitlines() if "=" in line)
    return {name: value.strip("\"'") for name, _, value in lines}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(held)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Nobody's second Ctrl-C may leave half of a stack behind: the clean-up is bounded, so it is let finish."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
