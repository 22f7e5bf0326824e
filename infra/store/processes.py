"""Rows of our own processes, and of the clock that they share on one host."""

from __future__ import annotations

from sqlalchemy import Index
from sqlmodel import Field

from infra.store.base import Row, refers
from infra.store.columns import as_text, big


class WorkerRow(Row, table=True):
    """`started_ticks`, the kernel's start time of `pid`, tells this process from the number's next owner."""

    __tablename__ = "worker"
    __table_args__ = (refers("host_id", "host"), Index("ix_worker_host_id", "host_id"))

    claim: str = Field(primary_key=True)
    host_id: str
    boot_id: str
    pid: int
    started_ticks: int = big()
    version: str = as_text()
    draining: bool = False
    started_ns: int = big()
    heartbeat_ns: int = big()


class ClockRow(Row, table=True):
    """How far the wall clock was ahead of the boot-time clock when a boot of this host first wrote to its SQLite."""

    __tablename__ = "clock"

    boot_id: str = Field(primary_key=True)
    ahead_ns: int = big()
