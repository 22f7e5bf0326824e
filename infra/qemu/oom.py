"""Whether the host's kernel killed a machine for want of memory: by what the kernel itself says, never by a guess.

Its log names the process, where we may read it and our process numbers are the kernel's. A machine's own control group
counts such kills, and then they are the machine's. Only where there is neither, a count of the group that it shares
with others, or of the whole host, has to do: then somebody was killed in the machine's time, and it was killed too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from app.domain.machine import Handle
from infra.qemu import limits
from infra.qemu.home import Home, write_atomically

_LOG = Path("/dev/kmsg")
_LOG_RECORD_BYTES = 8192
_KILLED = re.compile(r"[Oo]ut of memory: Killed process (\d+) \(.*")
_VMSTAT = Path("/proc/vmstat")
_CGROUPS = Path("/sys/fs/cgroup")
# The number of the first process namespace, a constant of the kernel: in it our numbers are those of its log.
_FIRST_NAMESPACE = "pid:[4026531836]"
_CLOCKS_APART_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Counts:
    """Kills so far: in the process's control group (`file` counts them, None if there is none), and on the host."""

    file: str | None
    in_group: int
    on_host: int


def note_birth(home: Home, pid: int) -> None:
    """Keep the counts of now beside the machine; on a full disk they are not."""
    with contextlib.suppress(OSError):
        write_atomically(home.kills, json.dumps(asdict(_counts(_group_file(pid)))))


def proof(home: Home, born: Handle) -> str | None:
    """What shows that the machine or its keeper was killed for want of memory; None where nothing does.

    Learnt at the first call and kept: the kernel's log goes on.
    """
    with contextlib.suppress(FileNotFoundError):
        return home.killed.read_text() or None
    found = _own_group(home.name) or _told(born)
    if found is None:
        found = _counted(home)
    with contextlib.suppress(OSError):
        write_atomically(home.killed, found)
    return found or None


def _own_group(name: str) -> str:
    file = limits.kills_of(name)
    kills = _count(file)
    return f"{file.parent.name}/memory.events: oom_kill {kills}" if kills else ""


def _told(born: Handle) -> str | None:
    """The log's own line; nothing where it has none; None where the log cannot tell."""
    if str(Path("/proc/self/ns/pid").readlink()) != _FIRST_NAMESPACE:
        return None
    since_ns, oldest_ns = born.started_boot_ns - _CLOCKS_APART_NS, None
    try:
        for at_ns, message in _log():
            oldest_ns = at_ns if oldest_ns is None else oldest_ns
            killed = _KILLED.search(message)
            if killed and int(killed[1]) in (born.pid, born.keeper_pid) and at_ns >= since_ns:
                return message
    except OSError:
        return None
    return "" if oldest_ns is not None and oldest_ns < since_ns else None


def _log() -> Iterator[tuple[int, str]]:
    """(boot-time ns, text) of each record, oldest first. Its clock stands while the host sleeps; ours does not."""
    slept_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    fd = os.open(_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                record = os.read(fd, _LOG_RECORD_BYTES).decode(errors="replace")
            except BlockingIOError:
                return
            except BrokenPipeError:  # the oldest records were overwritten while we read
                continue
            head, _, text = record.partition(";")
            yield int(head.split(",")[2]) * 1000 + slept_ns, text.partition("\n")[0]
    finally:
        os.close(fd)


def _counted(home: Home) -> str:
    try:
        born = Counts(**json.loads(home.kills.read_text()))
    except FileNotFoundError:
        return ""
    now = _counts(born.file)
    if born.file is not None and now.in_group > born.in_group:
        return f"oom_kill of its control group rose from {born.in_group} to {now.in_group}"
    if now.on_host > born.on_host:
        return f"oom_kill of the host rose from {born.on_host} to {now.on_host}"
    return ""


def _counts(file: str | None) -> Counts:
    return Counts(file, _count(Path(file)) if file else 0, _count(_VMSTAT))


def _group_file(pid: int) -> str | None:
    """What counts the kills of the process's group, in either version of control groups."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, kinds, group = line.split(":", 2)
        if "memory" in kinds.split(","):
            return str(_CGROUPS / "memory" / group.lstrip("/") / "memory.oom_control")
        if kinds == "" and (_CGROUPS / group.lstrip("/") / "memory.events").exists():
            return str(_CGROUPS / group.lstrip("/") / "memory.events")
    return None


def _count(file: Path) -> int:
    with contextlib.suppress(OSError):
        for line in file.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0
