"""Which host a waiting fork goes to: warm first, then free room. A pure choice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from app.domain.machine import Fingerprint, Shape
from app.domain.quarantine import Quarantine


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
    quarantine: Quarantine | None = None

    @property
    def takes_forks(self) -> bool:
        """Whether it may get any at all, room apart."""
        return self.alive and not self.draining and self.quarantine is None

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
    """Place what fits, in order; a fork that fits nowhere waits and holds up only what needs the same room.

    A host at fault for an earlier attempt is not given the fork again while another could ever take it, be that full
    now; if there is none, a second try here is better than an hour's wait for nothing.
    """
    left = {host.host_id: host for host in hosts}
    chosen = []
    for fork in waiting:
        again = _only_avoided(fork, left.values())
        best = max(
            (host for host in left.values() if unfit(fork, host, again=again) is None),
            key=lambda host: _preference(fork, host),
            default=None,
        )
        if best is None:
            continue
        left[best.host_id] = best.reserve(fork.shape)
        reason = _reason(fork, best)
        chosen.append(Placement(fork.fork_id, best.host_id, fork.shape, reason, fork.build_id))
    return tuple(chosen)


def unfit(fork: Waiting, host: Host, *, again: bool = False) -> str | None:
    """Why a fork cannot go to a host now; None when it can. `again`: also to one that failed it."""
    if not host.alive:
        return "no heartbeat"
    if host.draining:
        return "draining"
    if host.quarantine is not None:
        return f"in quarantine: {host.quarantine.reason}"
    if host.host_id in fork.avoid_hosts and not again:
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


def _only_avoided(fork: Waiting, hosts: Iterable[Host]) -> bool:
    """Whether no host but those that failed it could take this fork, were they empty."""
    return bool(fork.avoid_hosts) and not any(
        _could_take(fork, host) for host in hosts if host.host_id not in fork.avoid_hosts
    )


def _could_take(fork: Waiting, host: Host) -> bool:
    serving = fork.restore_key is None or serves(host, fork.restore_key)
    return host.takes_forks and serving and slots_for(fork.shape, host, free=False) > 0


def _reason(fork: Waiting, host: Host) -> str:
    warm = "warm here" if fork.bundle_id in host.mounted else "has room"
    reason = f"{warm}; {host.free_slots} free slots before it"
    if host.host_id in fork.avoid_hosts:
        reason += "; an earlier attempt failed here, and no other host could take it"
    return reason


def _preference(fork: Waiting, host: Host) -> tuple[bool, int, str]:
    return (fork.bundle_id in host.mounted, host.free_slots, host.host_id)
