"""The row of a host: what it is, the room it has left, and whatever keeps forks from it."""

from __future__ import annotations

from sqlalchemy import CheckConstraint
from sqlmodel import Field

from app.domain.machine import Fingerprint
from app.domain.quarantine import Quarantine, Strike
from infra.store.base import Row, not_negative
from infra.store.columns import as_json, as_text, big

Pairs = tuple[tuple[str, str], ...]
Words = tuple[str, ...]


class HostRow(Row, table=True):
    """`strikes` are the failures in a row that speak against it, `self_tests` those since a fork was handed over.

    `holds` are the bundles of its own folder, where it fetches none; `gone_ns` is when the cloud takes it back,
    `retired_ns` since when the fleet shrinks by it. `ahead_epoch` and `ahead_beat` are what it remembers of the
    deployment where the database had come less far.
    """

    __tablename__ = "host"
    __table_args__ = (
        *not_negative("free_memory_mib", "free_disk_gib", "free_slots", "self_tests"),
        CheckConstraint(
            "free_memory_mib <= memory_mib AND free_disk_gib <= disk_gib AND free_slots <= slots",
            name="no_more_free_than_there_is",
        ),
    )

    host_id: str = Field(primary_key=True)
    fingerprint: Fingerprint = as_json(Fingerprint)
    memory_mib: int
    disk_gib: int
    slots: int
    free_memory_mib: int
    free_disk_gib: int
    free_slots: int
    mounted: Words = as_json(Words)
    heartbeat_ns: int = big()
    strikes: tuple[Strike, ...] = as_json(tuple[Strike, ...])
    self_tests: int = 0
    quarantine: Quarantine | None = as_json(Quarantine, default=None)
    disk_free_bytes: int | None = big(default=None)
    disk_nearly_full: bool = False
    unmountable: Pairs = as_json(Pairs)
    zone: str | None = as_text(default=None)
    fetches: bool = True
    holds: Words = as_json(Words)
    gone_ns: int | None = big(default=None)
    retired_ns: int | None = big(default=None)
    ahead_epoch: int | None = big(default=None)
    ahead_beat: int | None = big(default=None)
