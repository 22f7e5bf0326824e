"""The clock of a SQLite database: it goes on at the pace of CLOCK_BOOTTIME, whatever is done to the host's wall clock.

The database's time decides when claims, heartbeats, holds and leases are over. With the wall clock for it, setting that
forward by an hour closed every live attempt by time, and setting it back let nothing end. All processes of one host
have one boot-time clock, and agree by a row on how far ahead of it the time of day was when this boot began to write.
PostgreSQL has its server's clock, which is the operator's to keep.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

from sqlalchemy import Connection, Table, select, text
from sqlalchemy.dialects import sqlite

from infra.store.processes import ClockRow

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# A database that is being brought up to this release has no such table yet.
_IS_THERE = text("SELECT 1 FROM sqlite_master WHERE name = 'clock'")

clocks = cast(Table, ClockRow.__table__)  # type: ignore[attr-defined]


class SteadyClock:
    """Of one process. What it read of the row once stays true for as long as it lives."""

    def __init__(self) -> None:
        self._ahead_ns: int | None = None

    def now_ns(self, at: Connection) -> int:
        """Ns since the epoch. A transaction that only reads, before anybody wrote, gets the wall clock."""
        if self._ahead_ns is None and at.execute(_IS_THERE).first() is not None:
            self._ahead_ns = _known(at) or _noted(at)
        return time.time_ns() if self._ahead_ns is None else boot_ns() + self._ahead_ns


def boot_ns() -> int:
    """CLOCK_BOOTTIME."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _known(at: Connection) -> int | None:
    found = at.execute(select(clocks.c.ahead_ns).where(clocks.c.boot_id == _boot_id())).scalar()
    return None if found is None else int(found)


def _noted(at: Connection) -> int | None:
    if at.get_execution_options().get("reading", False):
        return None
    row = {"boot_id": _boot_id(), "ahead_ns": time.time_ns() - boot_ns()}
    at.execute(sqlite.insert(clocks).values(row).on_conflict_do_nothing())
    return _known(at)


def _boot_id() -> str:
    return _BOOT_ID.read_text().strip()
