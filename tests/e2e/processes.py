"""Processes that are not our children: waiting for their end, reading what the kernel says of them."""

from __future__ import annotations

import os
import select
from pathlib import Path


def gone(*pids: int, within_s: float = 60.0) -> bool:
    """Wait until all of these have ended."""
    return all(_gone(pid, within_s) for pid in pids)


def status_of(pid: int) -> dict[str, str]:
    """The fields of its /proc status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, value in (line.split(":", 1) for line in lines)}


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
