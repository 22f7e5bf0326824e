"""Rows of our own processes, of the deployment that they make up, and of the clock that they share on one host."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index
from sqlmodel import Field

from infra.store.base import Row, not_negative, refers
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
    revision: str | None = None


class ControlProcessRow(Row, table=True):
    """A process of the control plane; see `app/domain/process.py`."""

    __tablename__ = "control_process"

    process_id: str = Field(primary_key=True)
    component: str
    machine: str = as_text()
    pid: int
    release: str = as_text()
    revision: str
    started_ns: int = big()
    heartbeat_ns: int = big()


class DeploymentRow(Row, table=True):
    """One row, made with the table. `least_revision`: the change of the schema that whoever uses this database must
    know; see `infra/store/migrate.py`.
    """

    __tablename__ = "deployment"
    __table_args__ = (
        CheckConstraint("one = 1", name="just_one"),
        *not_negative("beat", "since_ns"),
        CheckConstraint("epoch >= 1", name="epoch_from_1"),
    )

    one: int = Field(primary_key=True)
    deployment_id: str
    epoch: int = big()
    since_ns: int = big()
    beat: int = big()
    least_revision: str


class ClockRow(Row, table=True):
    """How far the wall clock was ahead of the boot-time clock when a boot of this host first wrote to its SQLite."""

    __tablename__ = "clock"

    boot_id: str = Field(primary_key=True)
    ahead_ns: int = big()
