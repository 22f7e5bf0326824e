"""The ports that a process holds: the control plane's, and a host's beside them."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.domain.money import NS_PER_HOUR
from app.domain.placement import Policy
from app.domain.rates import RateCard
from app.ports.audit import Audit, Uploads
from app.ports.bells import Bells
from app.ports.callers import Keys, Projects, Receipts
from app.ports.cloud import Cloud, Resources
from app.ports.deployment import Deployments, Processes
from app.ports.disk import Disk, RoomyDisk
from app.ports.hosts import Hosts
from app.ports.measures import Measures, Unmeasured
from app.ports.meters import Meters
from app.ports.mounts import Mounts
from app.ports.store import (
    Attempts,
    Builds,
    Execs,
    Quotes,
    Runs,
    Snapshots,
)
from app.ports.usage import Usage
from app.ports.warm import WarmTargets
from app.ports.workers import Workers
from app.ports.world import Blobs, Bundles, Clock, Guest, Images, Machines


@dataclass(frozen=True, slots=True)
class Limits:
    """What the operator allows. `egress` are the `host:port` patterns that a caller may ask for; none by default.

    `restored_grace_ns`: so long what a restored database does not know is told and left alone.
    """

    max_forks_per_run: int = 5000
    egress: tuple[str, ...] = ()
    quote_life_ns: int = 900 * 1_000_000_000
    max_shape_vcpus: int = 64
    max_shape_memory_mib: int = 262_144
    max_shape_disk_gib: int = 1024
    placement: Policy = Policy.SPREAD
    restored_grace_ns: int = 7 * 24 * NS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Ports:
    """What every process of the deployment has: rows, bells, clock, blobs, prices, limits, measures.

    `cloud` is there where stored bundles are snapshots of a cloud account, in its `region`.
    """

    keys: Keys
    projects: Projects
    receipts: Receipts
    audit: Audit
    uploads: Uploads
    snapshots: Snapshots
    warm: WarmTargets
    quotes: Quotes
    runs: Runs
    attempts: Attempts
    execs: Execs
    builds: Builds
    hosts: Hosts
    meters: Meters
    usage: Usage
    workers: Workers
    resources: Resources
    deployments: Deployments
    processes: Processes
    bells: Bells
    blobs: Blobs
    clock: Clock
    rates: RateCard
    images: Images
    limits: Limits
    measures: Measures = field(default_factory=Unmeasured)
    cloud: Cloud | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True)
class HostPorts:
    """What a host has beside them; `claim` names this worker process in every fenced write.

    `forks_at_once` bounds how many forks come up (restore, contract, own test) at the same time: more would only take
    longer each, with every meter running. `mounts_max` bounds the bundles mounted here that are stored elsewhere; below
    `disk_reserve_bytes` of free disk the host takes no forks.
    """

    host_id: str
    claim: str
    machines: Machines
    guest: Guest
    bundles: Bundles
    forks_at_once: int = 4
    mounts: Mounts = field(default_factory=Mounts)
    mounts_max: int = 16
    disk: Disk = field(default_factory=RoomyDisk)
    disk_reserve_bytes: int = 0
