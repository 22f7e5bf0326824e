"""Hosts as they say what they are, and how the server itself is."""

from __future__ import annotations

from typing import Literal

from app.api.schemas.base import Answer, Instant


class HostQuarantine(Answer):
    """Why a host gets no forks. It comes back by a self-test, or by its operator where `by_operator` is true."""

    reason: str
    kinds: list[str]
    since: str
    by_operator: bool
    last_test: str | None


class Host(Answer):
    """A host and its fitness; `missing` says in words what it cannot do.

    `gone_at`: the cloud takes it back then. `fetches`: it can mount any stored snapshot, and not only what is in its
    own folder. `unready`: why it gets no forks at all now, null when it may. `disk_left_bytes`: of the disk of its data
    folder, whoever filled it. `unmountable`: bundles that it could not mount a moment ago, each with the reason.
    """

    host_id: str
    state: Literal["up", "draining", "disk_low", "quarantined", "lost"]
    quarantine: HostQuarantine | None
    accelerator: Literal["kvm", "tcg"]
    accelerator_reason: str
    cpu_model: str
    vcpus: int
    memory_mib: int
    disk_gib: int
    slots: int
    slots_free: int
    zone: str | None = None
    gone_at: Instant | None = None
    fetches: bool = True
    unready: str | None = None
    disk_left_bytes: int | None = None
    restore_keys: list[str]
    mounted: list[str]
    unmountable: dict[str, str]
    missing: list[str]
    heartbeat_age_seconds: float


class Hosts(Answer):
    hosts: list[Host]
    next_cursor: str | None


class Alive(Answer):
    status: Literal["ok"]


class Part(Answer):
    name: str
    ready: bool
    detail: str


class Ready(Answer):
    ready: bool
    parts: list[Part]
