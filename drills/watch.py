"""The drill's own eyes: every machine's process, and every deadline that its file ever held, seen from outside.

Nothing of the product is asked: a process's end is told by the kernel (a pidfd), times are CLOCK_BOOTTIME, files are
read about 20 times a second. A machine whose process was gone when it was first seen ended, for all we know, then.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

POLL_MS = 50


@dataclass(frozen=True, slots=True)
class Seen:
    """One machine. Times are CLOCK_BOOTTIME in ns; `deadline_ns` is the latest that its file ever held.

    `cause` is how its keeper said it ended; None where it did not, or was not read before the files were removed.
    """

    name: str
    pid: int
    keeper_pid: int
    deadline_ns: int
    gone_ns: int | None = None
    keeper_gone_ns: int | None = None
    cause: str | None = None

    def late_ns(self, now_ns: int) -> int:
        """By how much its process outlived its last deadline; below zero where it ended before."""
        return (now_ns if self.gone_ns is None else self.gone_ns) - self.deadline_ns


class Watch:
    """Watches the machines under `root` until `close`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[str, Seen] = {}
        self._fds: dict[int, tuple[str, str]] = {}
        self._poll = select.poll()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="watch")
        self._thread.start()

    def seen(self) -> dict[str, Seen]:
        """Every machine so far, by name."""
        with self._lock:
            return dict(self._seen)

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join()
        for fd in self._fds:
            os.close(fd)

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            # Late by itself, the watch would call kills late that were not.
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        while not self._stop.is_set():
            ended = [fd for fd, _ in self._poll.poll(POLL_MS)]
            now_ns = boot_ns()
            with self._lock:
                for fd in ended:
                    self._note_end(fd, now_ns)
                for home in self._homes():
                    self._look(home)

    def _homes(self) -> list[Path]:
        with contextlib.suppress(FileNotFoundError):
            return [Path(entry.path) for entry in os.scandir(self._root)]
        return []

    def _look(self, home: Path) -> None:
        if home.name not in self._seen and not self._meet(home):
            return
        seen = self._seen[home.name]
        if seen.gone_ns is None:
            # A file that is taken back (to prevent a birth) takes no lease back.
            seen = replace(seen, deadline_ns=max(seen.deadline_ns, _number(home / "deadline") or 0))
        elif seen.cause is None:
            seen = replace(seen, cause=_words(home / "exit").get("cause"))
        self._seen[home.name] = seen

    def _meet(self, home: Path) -> bool:
        born, deadline_ns = _words(home / "born"), _number(home / "deadline")
        if not born or deadline_ns is None:
            return False
        seen = Seen(home.name, int(born["pid"]), int(born["keeper_pid"]), deadline_ns)
        self._seen[home.name] = seen
        for what, pid in (("machine", seen.pid), ("keeper", seen.keeper_pid)):
            fd = _open(pid, home)
            if fd is None:
                self._end(home.name, what, boot_ns())
                continue
            self._fds[fd] = (home.name, what)
            self._poll.register(fd, select.POLLIN)
        return True

    def _note_end(self, fd: int, now_ns: int) -> None:
        self._poll.unregister(fd)
        name, what = self._fds.pop(fd)
        os.close(fd)
        if what == "machine":
            # A longer lease that came since the last look was one that it had.
            self._look(self._root / name)
        self._end(name, what, now_ns)

    def _end(self, name: str, what: str, now_ns: int) -> None:
        seen = self._seen[name]
        if what == "machine":
            self._seen[name] = replace(seen, gone_ns=now_ns)
        else:
            self._seen[name] = replace(seen, keeper_gone_ns=now_ns)


@contextlib.contextmanager
def watching(root: Path) -> Iterator[Watch]:
    """A watch for the length of the block."""
    watch = Watch(root)
    try:
        yield watch
    finally:
        watch.close()


def living(seen: Mapping[str, Seen]) -> list[Seen]:
    """Machines whose process and keeper live, by name."""
    alive = (each for each in seen.values() if each.gone_ns is None and each.keeper_gone_ns is None)
    return sorted(alive, key=lambda each: each.name)


def boot_ns() -> int:
    """The clock that leases are measured by."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def works_in(pid: int, home: Path) -> bool:
    """Whether this process has its working directory there, as a machine and its keeper have."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == home
    except OSError:
        return False


def _open(pid: int, home: Path) -> int | None:
    """A descriptor of the process; None when it is gone, and its number perhaps another's."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if works_in(pid, home):
        return fd
    os.close(fd)
    return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _words(path: Path) -> dict[str, str]:
    """A line of `key=value` words; none where there is no file, or not yet a whole one."""
    try:
        words = path.read_text().split()
    except OSError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)
