"""Rows of what is to be kept warm, and of machines of our own that are no fork's."""

from __future__ import annotations

from sqlalchemy import CheckConstraint
from sqlmodel import Field

from infra.store.base import Row, refers
from infra.store.columns import big


class WarmTargetRow(Row, table=True):
    """`version` 0 stands for the newest of its name, whichever that is: a key holds no NULL."""

    __tablename__ = "warm_target"
    __table_args__ = (
        CheckConstraint("hosts >= 1", name="some_hosts"),
        CheckConstraint("version >= 0", name="version_or_newest"),
    )

    project_id: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    version: int = Field(primary_key=True)
    hosts: int
    set_ns: int = big()


class TrialRow(Row, table=True):
    """The room that one of our own machines holds, until it is let go or its time is over."""

    __tablename__ = "trial"
    __table_args__ = (refers("host_id", "host"),)

    name: str = Field(primary_key=True)
    host_id: str
    vcpus: int
    memory_mib: int
    disk_gib: int
    until_ns: int = big()
