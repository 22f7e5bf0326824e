"""A host of the rehearsal: a stack of its worker alone, in a folder that stands for its local disk."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.stack import start, stop
from infra.settings import load
from infra.stack.process import Process, carrying, find
from infra.stack.records import MARK, Places, read_identity

_GROUPS = Path("/sys/fs/cgroup/promigence")
_PROC = Path("/proc")
_DEAD_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Host:
    """One instance. `environment` is what its user data would write for its worker."""

    instance_id: str
    directory: Path
    environment: Mapping[str, str]

    @property
    def devices(self) -> Path:
        """Where its attached volumes show up."""
        return Path(self.environment["PROMIGENCE_DEVICES"])

    @property
    def machines(self) -> Path:
        """Where each of its machines has a directory."""
        return self.directory / "machines"

    def up(self) -> float:
        """Return when its worker takes work; in so many seconds. Raises subprocess.CalledProcessError."""
        began = time.monotonic()
        start(self.directory, None, self.environment)
        return time.monotonic() - began

    def down(self) -> None:
        """Take it down as an operator would. Twice is safe. Raises subprocess.CalledProcessError."""
        stop(self.directory)

    def power_off(self) -> int:
        """All its processes are gone at once, and nobody has said good-bye; how many they were.

        Its disk goes with it. What is attached to it stays attached, and mounted, until the instance is terminated.
        """
        stack = read_identity(self._places)
        assert stack is not None
        mark = f"{MARK}={stack.stack_id}"
        names = [path.name for path in self.machines.iterdir()]
        killed: set[int] = set()
        until = time.monotonic() + _DEAD_WITHIN_S
        while left := [*carrying(mark), *self.machine_processes()]:
            for process in left:
                process.signal(signal.SIGKILL)
            killed |= {process.pid for process in left}
            if time.monotonic() > until:
                raise TimeoutError(f"processes of {self.instance_id} outlive SIGKILL")
            time.sleep(0.02)
        for name in names:
            with suppress(OSError):  # its kernel is gone, and its control groups with it
                (_GROUPS / name).rmdir()
        return len(killed)

    def remove(self) -> None:
        """The local disk of an instance that is gone."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._places.run_dir)
        with suppress(FileNotFoundError):
            shutil.rmtree(self.directory)

    def machine_processes(self) -> list[Process]:
        """Keepers and hypervisors: whatever stands in a machine's directory, be that removed or not."""
        found = []
        for entry in _PROC.iterdir():
            with suppress(OSError):  # no process, or gone meanwhile
                if (entry / "cwd").readlink().is_relative_to(self.machines):
                    found.append(find(int(entry.name)))
        return [process for process in found if process is not None]

    def said(self, event: str) -> Iterator[dict[str, Any]]:
        """What its worker has logged under a name."""
        log = self.directory / "logs" / "worker.log"
        for line in log.read_text().splitlines() if log.exists() else ():
            with suppress(ValueError):  # a traceback, or half a line
                told = json.loads(line)
                if told.get("event") == event:
                    yield told

    @property
    def _places(self) -> Places:
        settings = load(self.directory)
        return Places(settings.dir, settings.sockets)
