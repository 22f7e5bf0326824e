"""Which host a waiting fork goes to: warm first, then free room. A pure choice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from app.domain.machine import Fingerprint, Shape


@dataclass(frozen=True, slots=True)
class Host:
    """A host as its row shows it: its fitness, and what is reserved on it in full."""

    host_id: str
    fingerprint: Fingerprint
    free_memory_mib: int
    free_disk_gib: int
    slots: int
    free_slots: int
    mounted: tuple[str, ...] = ()
    alive: bool = True
    draining: bool = False
    heartbeat_age_ns: int = 0

    def reserve(self, shape: Shape) -> Host:
        return replace(
            self,
            free_memory_mib=self.free_memory_mib - shape.memory_mib,
            free_disk_gib=self.free_disk_gib - shape.disk_gib,
            free_slots=self.free_slots - 1,
        )


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued fork. `restore_key` None is a template: it boots anywhere."""

    fork_id: str
    run_id: str
    bundle_id: str
    restore_key: str | None
    shape: Shape
    avoid_hosts: tuple[str, ...] = ()
    build_id: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """One choice and its reason, readable by people."""

    fork_id: str
    host_id: str
    shape: Shape
    reason: str
    build_id: str | None = None


def choose(waiting: Iterable[Waiting], hosts: Iterable[Host]) -> tuple[Placement, ...]:
    """Place what fits, in order; a fork that fits nowhere waits and holds up only what needs the same room."""
    left = {host.host_id: host for host in hosts}
    chosen = []
    for fork in waiting:
        best = max(
            (host for host in left.values() if unfit(fork, host) is None),
            key=lambda host: _preference(fork, host),
            default=None,
        )
        if best is None:
            continue
        left[best.host_id] = best.reserve(fork.shape)
        warm = "warm here" if fork.bundle_id in best.mounted else "has room"
        chosen.append(
            Placement(
                fork.fork_id,
                best.host_id,
                fork.shape,
                f"{warm}; {best.free_slots} free slots before it",
                fork.build_id,
            )
        )
    return tuple(chosen)


def unfit(fork: Waiting, host: Host) -> str | None:
    """Why a fork cannot go to a host now; None when it can."""
    if not host.alive:
        return "no heartbeat"
    if host.draining:
        return "draining"
    if host.host_id in fork.avoid_hosts:
        return "an earlier attempt failed here"
    if fork.restore_key is not None and not serves(host, fork.restore_key):
        return f"cannot restore {fork.restore_key}"
    shape = fork.shape
    if host.free_slots < 1 or host.free_memory_mib < shape.memory_mib:
        return "no free memory"
    if host.free_disk_gib < shape.disk_gib:
        return "no free disk"
    return None


def serves(host: Host, restore_key: str) -> bool:
    """Whether this host restores what was frozen under that key."""
    return restore_key in {str(key) for key in host.fingerprint.restore_keys}


def slots_for(shape: Shape, host: Host, *, free: bool) -> int:
    """How many forks of a shape a host holds in all, or has room for now."""
    memory = host.free_memory_mib if free else host.fingerprint.memory_mib
    disk = host.free_disk_gib if free else host.fingerprint.disk_gib
    count = host.free_slots if free else host.slots
    return max(0, min(count, memory // shape.memory_mib, disk // shape.disk_gib))


def _preference(fork: Waiting, host: Host) -> tuple[bool, int, str]:
    return (fork.bundle_id in host.mounted, host.free_slots, host.host_id)
