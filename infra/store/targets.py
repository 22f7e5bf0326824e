"""Rows of what is to be kept warm."""

from __future__ import annotations

from sqlalchemy import CheckConstraint
from sqlmodel import Field

from infra.store.base import Row
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
