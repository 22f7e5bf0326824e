"""One process of ours, told apart from whoever gets its number next: by its start time, and by this boot."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_POLL_S = 0.02
GONE_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Process:
    """A process as we recorded it. `started_ticks` is the kernel's own start time of this number."""

    pid: int
    started_ticks: int
    boot_id: str

    def alive(self) -> bool:
        """Whether it is this very process that lives (a zombie does not)."""
        return self.boot_id == boot_id() and _started_ticks(self.pid) == self.started_ticks

    def signal(self, number: signal.Signals) -> None:
        """Silent when it is gone."""
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def find(pid: int) -> Process | None:
    """The process that has this number now; None when nobody lives under it."""
    ticks = _started_ticks(pid)
    return None if ticks is None else Process(pid, ticks, boot_id())


def carrying(mark: str) -> tuple[Process, ...]:
    """Every process of ours whose environment has this `NAME=value`: whatever a stack started, recorded or not."""
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid() and _carries(entry, mark):
            process = find(int(entry.name))
            if process is not None:
                found.append(process)
    return tuple(found)


def stop(processes: Iterable[Process], *, patience_s: float) -> tuple[Process, ...]:
    """Ask all of them to end, and end those that did not in time. Returns those that had to be killed."""
    asked = tuple(processes)
    for process in asked:
        process.signal(signal.SIGTERM)
        # A stopped process hears nothing before it goes on.
        process.signal(signal.SIGCONT)
    stubborn = _outlasting(asked, patience_s)
    for process in stubborn:
        process.signal(signal.SIGKILL)
    _outlasting(stubborn, GONE_WITHIN_S)
    return stubborn


def end_at_once(process: Process) -> bool:
    """Kill a process, frozen or not, and wait until it is gone; whether it is."""
    try:
        pinned = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        # Looked at after the number was pinned: it never is a later process of the same number.
        if process.alive():
            signal.pidfd_send_signal(pinned, signal.SIGKILL)
    finally:
        os.close(pinned)
    return not _outlasting((process,), GONE_WITHIN_S)


def boot_id() -> str:
    """This boot: start times compare only within one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _outlasting(processes: tuple[Process, ...], patience_s: float) -> tuple[Process, ...]:
    until = time.monotonic() + patience_s
    left = tuple(process for process in processes if process.alive())
    while left and time.monotonic() < until:
        time.sleep(_POLL_S)
        left = tuple(process for process in left if process.alive())
    return left


def _started_ticks(pid: int) -> int | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in brackets may hold anything; what follows its last bracket is numbers (proc_pid_stat(5), field 3 on).
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _carries(entry: Path, mark: str) -> bool:
    try:
        return mark.encode() in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False  # gone meanwhile, or another user's
