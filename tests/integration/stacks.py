"""A real stack in a directory of its own, run by the command line as a person runs it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.settings import runtime_dir
from promigence import Promigence
from promigence.types import Definition

SERVER = (sys.executable, "-P", "-m", "workers.server")
DEFINITION: Definition = {
    "name": "task-suite",
    "image": "debian-12",
    "shape": {"vcpus": 1, "memory_mib": 512, "disk_gib": 4},
    "test": {"sh": "sim: print healthy exit 0"},
}
# What stays of a stack that is down: data, and the settings that it is read by.
STAYS = {
    *("promigence.db", "key.secret", "metrics.token", "settings.json", "lock"),
    *("deployment.control.json", "deployment.host.json"),
    *("blobs", "bundles", "spool", "machines", "logs"),
}


@dataclass(frozen=True, slots=True)
class Stack:
    directory: Path

    def server(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `promigence-server` here."""
        return subprocess.run(
            (*SERVER, *words, "--dir", str(self.directory)),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def up(self) -> None:
        done = self.server("up", "--machines", "fake")
        assert done.returncode == 0, done.stderr

    def down(self) -> None:
        done = self.server("down")
        assert done.returncode == 0, done.stderr

    def status(self) -> dict[str, dict[str, object]]:
        parts = json.loads(self.server("status", "--json").stdout)
        return {part["name"]: part for part in parts}

    def pids(self) -> dict[str, int]:
        """The parts' processes, as the supervisor wrote them down."""
        written = json.loads((self.directory / "processes.json").read_text())
        return {name: int(process["pid"]) for name, process in written.items()}

    def pid(self, name: str) -> int:
        return self.pids()[name]

    def supervisor_pid(self) -> int:
        written = json.loads((self.directory / "stack.json").read_text())
        return int(written["supervisor"]["pid"])

    def environment(self) -> dict[str, str]:
        """What `up` wrote for those who use the stack."""
        lines = (self.directory / "env").read_text().splitlines()
        pairs = (line.partition("=") for line in lines)
        return {name: "".join(shlex.split(value)) for name, _, value in pairs}

    @contextmanager
    def client(self) -> Iterator[Promigence]:
        env = self.environment()
        with Promigence(
            api_key=env["PROMIGENCE_API_KEY"], base_url=env["PROMIGENCE_BASE_URL"]
        ) as client:
            yield client

    def processes(self) -> list[int]:
        """Every living process that was started for this directory, found by what it was started with."""
        ours = str(self.directory).encode()
        runtime = str(self.run_dir).encode()
        said = {pid: _read(pid, "cmdline") for pid in _pids()}
        return [pid for pid, argv in said.items() if ours in argv or runtime in argv]

    @property
    def run_dir(self) -> Path:
        return runtime_dir(self.directory)

    def leavings(self) -> set[str]:
        """What a stack that is down has left and should not have."""
        files = {path.name for path in self.directory.iterdir()} - STAYS
        sockets = {str(path) for path in self.directory.rglob("*") if path.is_socket()}
        mounts = {
            line.split()[4]
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if line.split()[4].startswith((str(self.directory), str(self.run_dir)))
        }
        runtime = {str(self.run_dir)} if self.run_dir.exists() else set()
        return files | sockets | mounts | runtime


def kill(pid: int) -> None:
    """Kill a process that a stack's own files name."""
    os.kill(pid, signal.SIGKILL)


def until(holds: Callable[[], bool], what: str, within_s: float = 20.0) -> None:
    """Wait for something that other processes bring about."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, f"not within {within_s:g} s: {what}"
        time.sleep(0.1)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
