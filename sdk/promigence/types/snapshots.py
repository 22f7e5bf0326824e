"""Snapshots, their builds, and hosts."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from promigence.types.runs import Check
from promigence.types.terms import Shape

BuildState = Literal[
    "queued", "building", "verifying", "verified", "refused", "failed", "cancelled"
]


class BuildLine(TypedDict):
    n: int
    step: str
    text: str


class Build(TypedDict):
    """A build as it stands; `log` holds the lines that are new since the last look.

    `rebuilds` is the version that it makes anew, None of a build from a definition.
    """

    build_id: str
    name: str
    state: BuildState
    step: str | None
    log: list[BuildLine]
    snapshot: str | None
    rebuilds: str | None
    error: dict[str, Any] | None
    cost_usd: float


class Restore(TypedDict):
    """Where a version can be restored now, by hosts that are up.

    It `needs` one of their `keys`: `serving` have it, and `able` are those of them that have its bundle or can fetch
    it. `why` says what keeps it from being restored, or soon will; None when nothing does.
    """

    needs: str
    keys: list[str]
    serving: list[str]
    able: list[str]
    why: str | None


class StoredBundle(TypedDict):
    """A copy of a version: a snapshot in the cloud account (`id` and `region` are its), or on the host `id`.

    `since` is None where that is not known. `mounted`: forks of that host wait for nothing.
    """

    where: Literal["cloud", "host"]
    id: str
    region: str | None
    bytes: int
    since: str | None
    mounted: bool


class UnfitHost(TypedDict):
    host: str
    reason: str


class Warm(TypedDict):
    """How a warm target is met: on at least `hosts` hosts `snapshot` is to be mounted.

    `warm_on` have it, `coming_on` are to; `missing` more hosts are wanted than could have it, and `unfit` says why of
    each other one. `follows_name`: it was set for the bare name, and moves with it.
    """

    hosts: int
    snapshot: str
    follows_name: bool
    met: bool
    warm_on: list[str]
    coming_on: list[str]
    missing: int
    unfit: list[UnfitHost]


class Snapshot(TypedDict):
    """One immutable, verified version; `snapshot` is `name@version`.

    `state` is `stale` when no host that is up restores what was frozen under its key (`rebuild` makes it anew), and
    `unreachable` when those that do cannot get at its bundle.
    """

    snapshot: str
    name: str
    version: int
    latest: bool
    state: Literal["verified", "stale", "unreachable"]
    restore: Restore
    image: str
    shape: Shape
    egress: list[str]
    restore_key: str
    accelerator: Literal["kvm", "tcg"]
    created_at: str
    bytes: int
    bundles: list[StoredBundle]
    warm: Warm | None
    checks: list[Check]
    provenance: dict[str, Any]


class Deleted(TypedDict):
    deleted: list[str]


class HostQuarantine(TypedDict):
    """Why a host gets no forks. It comes back by a self-test, or by its operator where `by_operator` is true."""

    reason: str
    kinds: list[str]
    since: str
    by_operator: bool
    last_test: str | None


class Host(TypedDict):
    """A host and its fitness; `missing` says in words what it cannot do.

    `gone_at`: the cloud takes it back then. `fetches`: it can mount any stored snapshot, and not only what its own
    folder has. `unready`: why it gets no forks at all now. `disk_left_bytes`: of the disk of its data folder, whoever
    filled it. `unmountable`: bundles that it could not mount a moment ago, each with the reason.
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
    zone: str | None
    gone_at: str | None
    fetches: bool
    unready: str | None
    disk_left_bytes: int | None
    restore_keys: list[str]
    mounted: list[str]
    unmountable: dict[str, str]
    missing: list[str]
    heartbeat_age_seconds: float
