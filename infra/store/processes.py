"""Rows of our own processes."""

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
