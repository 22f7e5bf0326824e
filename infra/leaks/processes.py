"""Processes of machines, found by where they stand, and files that are gone and still held open by ourselves."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from app.domain.leak import Leak, LeakKind, Trace
from infra.leaks.paths import name_below

PROC = Path("/proc")
_HYPERVISOR = "qemu-system-"
_GONE = " (deleted)"
_GONE_WITHIN_MS = 10_000


def strays(machines: Path, keeper: Path) -> Iterator[Trace]:
    """Keepers and hypervisors that stand in a machine's directory, be that there or removed.

    Nobody else's: an operator's shell may stand there too.
    """
    for entry in _numbers():
        name = _machine_of(entry, machines, keeper)
        if name is not None:
            number = f"{name}/{entry.name}"
            leak = Leak(LeakKind.PROCESS, number, _program(entry), age_ns=_age_ns(entry))
            yield Trace(leak, owner=name)


def end(machines: Path, keeper: Path, leak: Leak) -> bool:
    """Kill one and wait until it is gone; False if its number is somebody else's by now, or it outlives SIGKILL."""
    name, _, number = leak.name.partition("/")
    try:
        pidfd = os.pidfd_open(int(number))
    except ProcessLookupError:
        return False
    try:
        # Looked at after its number was pinned: whoever has it now keeps it until we are done.
        entry = PROC / number
        if _machine_of(entry, machines, keeper) == name:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        elif _program(entry):
            return False
        # One that is dying, as a hypervisor is whose keeper was killed, has no program any more: it is waited for.
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(_GONE_WITHIN_MS))
    finally:
        os.close(pidfd)


def deleted_files(roots: tuple[Path, ...], pids: Iterable[int]) -> Iterator[Trace]:
    """Files of machines and bundles that are removed, and that these processes hold open: their room is not free."""
    for pid in pids:
        for target in _open_files(PROC / str(pid)):
            if not target.endswith(_GONE):
                continue
            path = Path(target.removesuffix(_GONE))
            owner = name_below(roots, path)
            if owner is not None:
                leak = Leak(LeakKind.DELETED_FILE, str(path), f"open in process {pid}")
                yield Trace(leak, owner=owner)


def _machine_of(entry: Path, machines: Path, keeper: Path) -> str | None:
    program = _program(entry)
    if not program.startswith(_HYPERVISOR) and program != keeper.name:
        return None
    where = _link(entry / "cwd")
    return None if where is None else name_below((machines,), Path(where.removesuffix(_GONE)))


def _program(entry: Path) -> str:
    """The name of the file that runs, be that replaced since."""
    return Path((_link(entry / "exe") or "").removesuffix(_GONE)).name


def _open_files(entry: Path) -> tuple[str, ...]:
    try:
        links = [_link(fd) for fd in (entry / "fd").iterdir()]
    except OSError:
        return ()  # gone meanwhile, or another user's
    return tuple(link for link in links if link is not None)


def _age_ns(entry: Path) -> int | None:
    """By the kernel's start time (proc_pid_stat(5), field 22), on the boot-time clock."""
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    started_ns = int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return max(0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - started_ns)


def _numbers() -> Iterator[Path]:
    return (entry for entry in PROC.iterdir() if entry.name.isdecimal())


def _link(entry: Path) -> str | None:
    try:
        return str(entry.readlink())
    except OSError:
        return None  # gone meanwhile, or another user's
