"""Which host a waiting fork goes to: warm first, then by the policy; a pure choice that tells its reasons.

A host is warm for a fork while the fork's bundle is mounted there. A cold one, which has to mount it first (minutes,
and a volume), is taken only when no warm one has room, whatever the policy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from app.domain.deployment import told
from app.domain.instant import instant
from app.domain.machine import Fingerprint, Shape
from app.domain.quarantine import Quarantine

# What a choice says of the hosts that were not chosen, at most: different reasons, hosts named for each, characters.
MAX_WHYS = 8
MAX_NAMED = 4
MAX_WHY_CHARS = 160


class Policy(StrEnum):
    """Among hosts that are equally warm: SPREAD takes the one with most room, so that a host's end costs a run least.

    PACK takes the one with least, so that others fall idle and can go.
    """

    SPREAD = "spread"
    PACK = "pack"


@dataclass(frozen=True, slots=True)
class Host:
    """A host as its row shows it: its fitness, and what is reserved on it in full.

    `mounted` are the bundles that are warm here. `fetches`: it can mount any bundle that is stored; one that cannot
    forks only from what is in its own folder (`holds`). `gone_at_ns`: the cloud takes it back then, by the database's
    clock; it drains. `disk_free_bytes` is what the disk of its data folder has left, whoever filled it.
    `unmountable` are bundles that it could not mount a moment ago, each with the reason. `retiring`: the fleet ends it.
    `ahead`: an epoch and a beat that it remembers and the database has not come to: that went back, and it waits.
    """

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
    zone: str | None = None
    fetches: bool = True
    holds: tuple[str, ...] = ()
    gone_at_ns: int | None = None
    disk_free_bytes: int | None = None
    disk_nearly_full: bool = False
    unmountable: tuple[tuple[str, str], ...] = ()
    retiring: bool = False
    ahead: tuple[int, int] | None = None

    @property
    def takes_forks(self) -> bool:
        """Whether it may get any at all, room apart."""
        return self.unready is None

    @property
    def unready(self) -> str | None:
        """Why it gets no forks at all, room apart; None when it may."""
        if not self.alive:
            return "no heartbeat"
        if self.gone_at_ns is not None:
            return f"the cloud takes it back at {instant(self.gone_at_ns)}"
        if self.ahead is not None:
            return f"database_went_back: it remembers {told(self.ahead)}, and the database does not"
        if self.retiring:
            return "the fleet shrinks by it"
        if self.draining:
            return "draining"
        if self.quarantine is not None:
            return f"in quarantine: {self.quarantine.reason}"
        if self.disk_nearly_full:
            return (
                f"its disk is nearly full: {(self.disk_free_bytes or 0) / (1 << 30):.1f} GiB left"
            )
        return None

    @property
    def leaves(self) -> bool:
        return self.draining or self.retiring or self.gone_at_ns is not None

    def reserve(self, shape: Shape) -> Host:
        return replace(
            self,
            free_memory_mib=self.free_memory_mib - shape.memory_mib,
            free_disk_gib=self.free_disk_gib - shape.disk_gib,
            free_slots=self.free_slots - 1,
        )


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued fork. `restore_key` None is a template: it boots anywhere.

    `held_by` is the one host that has its bundle: it is a candidate, not stored for others yet.
    """

    fork_id: str
    run_id: str
    bundle_id: str
    restore_key: str | None
    shape: Shape
    avoid_hosts: tuple[str, ...] = ()
    build_id: str | None = None
    held_by: str | None = None


@dataclass(frozen=True, slots=True)
class Against:
    """What stood against some hosts: a few of them by name, the rest counted."""

    why: str
    hosts: tuple[str, ...]
    more: int = 0

    def as_dict(self) -> dict[str, object]:
        return {"why": self.why, "hosts": list(self.hosts), "more": self.more}


@dataclass(frozen=True, slots=True)
class Placement:
    """One choice, its reason, and what stood against the other hosts; both readable by people."""

    fork_id: str
    host_id: str
    shape: Shape
    reason: str
    build_id: str | None = None
    against: tuple[Against, ...] = ()


def choose(
    waiting: Iterable[Waiting], hosts: Iterable[Host], policy: Policy = Policy.SPREAD
) -> tuple[Placement, ...]:
    """Place what fits, in order; a fork that fits nowhere waits and holds up only what needs the same room.

    A host at fault for an earlier attempt is not given the fork again while another could ever take it, be that full
    now; if there is none, a second try here is better than an hour's wait for nothing.
    """
    left = {host.host_id: host for host in hosts}
    chosen = []
    for fork in waiting:
        again = only_avoided(fork, left.values())
        whys = {name: unfit(fork, host, again=again) for name, host in left.items()}
        best = max(
            (left[name] for name, why in whys.items() if why is None),
            key=lambda host: _preference(fork, host, policy),
            default=None,
        )
        if best is None:
            continue
        left[best.host_id] = best.reserve(fork.shape)
        behind = {
            name: why or _behind(fork, left[name], best, policy)
            for name, why in whys.items()
            if name != best.host_id
        }
        reason, against = _reason(fork, best, policy), grouped(behind)
        placed = Placement(fork.fork_id, best.host_id, fork.shape, reason, fork.build_id, against)
        chosen.append(placed)
    return tuple(chosen)


def unfit(fork: Waiting, host: Host, *, again: bool = False) -> str | None:
    """Why a fork cannot go to a host now; None when it can. `again`: also to one that failed it."""
    if host.unready is not None:
        return host.unready
    if host.host_id in fork.avoid_hosts and not again:
        return "an earlier attempt failed here"
    why = _cannot_restore(fork, host)
    if why is not None:
        return why
    shape = fork.shape
    if host.free_slots < 1:
        return "no free slot"
    if host.free_memory_mib < shape.memory_mib:
        return "no free memory"
    if host.free_disk_gib < shape.disk_gib:
        return "no free disk"
    return None


def serves(host: Host, restore_key: str) -> bool:
    """Whether this host restores what was frozen under that key."""
    return any(str(key) == restore_key for key in host.fingerprint.restore_keys)


def slots_for(shape: Shape, host: Host, *, free: bool) -> int:
    """How many forks of a shape a host holds in all, or has room for now."""
    memory = host.free_memory_mib if free else host.fingerprint.memory_mib
    disk = host.free_disk_gib if free else host.fingerprint.disk_gib
    count = host.free_slots if free else host.slots
    return max(0, min(count, memory // shape.memory_mib, disk // shape.disk_gib))


def only_avoided(fork: Waiting, hosts: Iterable[Host]) -> bool:
    """Whether no host but those that failed it could take this fork, were they empty."""
    return bool(fork.avoid_hosts) and not any(
        could_take(fork, host) for host in hosts if host.host_id not in fork.avoid_hosts
    )


def could_take(fork: Waiting, host: Host) -> bool:
    """Whether a fork could go to a host if that were empty."""
    able = host.takes_forks and _cannot_restore(fork, host) is None
    return able and slots_for(fork.shape, host, free=False) > 0


def grouped(whys: dict[str, str]) -> tuple[Against, ...]:
    """Hosts by what stood against them, the most frequent first, within what an event may say."""
    by_why: dict[str, list[str]] = {}
    for name, why in sorted(whys.items()):
        by_why.setdefault(why[:MAX_WHY_CHARS], []).append(name)
    most = sorted(by_why.items(), key=lambda each: (-len(each[1]), each[0]))
    told = [Against(why, *_some(names)) for why, names in most[:MAX_WHYS]]
    rest = [name for _, names in most[MAX_WHYS:] for name in names]
    return (*told, Against("other reasons", *_some(rest))) if rest else tuple(told)


def _some(names: list[str]) -> tuple[tuple[str, ...], int]:
    return tuple(names[:MAX_NAMED]), max(0, len(names) - MAX_NAMED)


def _cannot_restore(fork: Waiting, host: Host) -> str | None:
    """Why the bundle of a fork does not come to life on a host, however much room it has."""
    if fork.restore_key is None:
        return None
    if not serves(host, fork.restore_key):
        return f"cannot restore {fork.restore_key}"
    if fork.held_by is not None:
        here = fork.held_by == host.host_id
        return None if here else f"the candidate is not stored yet: only {fork.held_by} has it"
    if not (host.fetches or _has(host, fork.bundle_id)):
        return "the snapshot is not in its own folder, and it fetches none"
    return None


def _has(host: Host, bundle_id: str) -> bool:
    return bundle_id in host.mounted or bundle_id in host.holds


def _preference(fork: Waiting, host: Host, policy: Policy) -> tuple[bool, bool, int, str]:
    could_not = _could_not_mount(fork, host) is not None
    return (_is_warm(fork, host), not could_not, _rank(fork, host, policy), host.host_id)


def _is_warm(fork: Waiting, host: Host) -> bool:
    """Nothing has to be mounted there first: a template boots anywhere."""
    return fork.restore_key is None or fork.bundle_id in host.mounted


def _could_not_mount(fork: Waiting, host: Host) -> str | None:
    """Why a fork would wait there for a mount that failed a moment ago."""
    return None if _is_warm(fork, host) else dict(host.unmountable).get(fork.bundle_id)


def _rank(fork: Waiting, host: Host, policy: Policy) -> int:
    room = slots_for(fork.shape, host, free=True)
    return room if policy is Policy.SPREAD else -room


def _behind(fork: Waiting, host: Host, best: Host, policy: Policy) -> str:
    """What spoke against a host that could have had the fork."""
    if _is_warm(fork, best) and not _is_warm(fork, host):
        return "would have to mount the snapshot first"
    why, of_best = _could_not_mount(fork, host), _could_not_mount(fork, best)
    if why is not None and of_best is None:
        return why
    if _rank(fork, host, policy) == _rank(fork, best, policy):
        return "as much room: its name decided"
    return "less room" if policy is Policy.SPREAD else "more room"


def _reason(fork: Waiting, host: Host, policy: Policy) -> str:
    room = slots_for(fork.shape, host, free=True)
    reason = f"{_warmth(fork, host)}; {policy.value}: room for {room} such forks before it"
    if host.host_id in fork.avoid_hosts:
        reason += "; an earlier attempt failed here, and no other host could take it"
    return reason


def _warmth(fork: Waiting, host: Host) -> str:
    if fork.restore_key is None:
        return "boots anywhere"
    if fork.bundle_id in host.mounted:
        return "warm here"
    if fork.held_by is not None:
        return "the only host that has the candidate"
    return "mounts it first: no warm host has room"
