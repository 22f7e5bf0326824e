"""Processes that are not our children: waiting for their end, reading what the kernel says of them."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from pathlib import Path


def gone(*pids: int, within_s: float = 60.0) -> bool:
    """Wait until all of these have ended."""
    return all(_gone(pid, within_s) for pid in pids)


def soon(is_so: Callable[[], bool], within_s: float = 60.0) -> bool:
    """Whether another process makes it so in time."""
    never = select.poll()
    for _ in range(int(within_s * 50)):
        if is_so():
            return True
        never.poll(20)
    return False


def status_of(pid: int) -> dict[str, str]:
    """The fields of its /proc status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, value in (line.split(":", 1) for line in lines)}


def sockets(pid: int) -> dict[str, int]:
    """How many sockets it has open, by kind: `unix`, and every kind that leads out of this host."""
    held = {each[8:-1] for each in descriptors(pid) if each.startswith("socket:[")}
    kinds = ("unix", "tcp", "tcp6", "udp", "udp6", "raw", "raw6", "packet", "netlink")
    tables = {kind: Path(f"/proc/{pid}/net/{kind}") for kind in kinds}
    return {
        kind: len(held & {word for line in table.read_text().splitlines() for word in line.split()})
        for kind, table in tables.items()
        if table.exists()
    }


def descriptors(pid: int) -> set[str]:
    """What its open descriptors lead to."""
    return {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}


def _gone(pid: int, within_s: float) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], within_s)[0])
    finally:
        os.close(pidfd)
