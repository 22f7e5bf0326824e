"""Bring bundles to this host before a fork that needs them is claimed, and give up what nobody needs here.

No meter runs while a bundle is mounted, be that minutes. What could not be mounted is the failure of the forks that
waited for it: each is claimed, fails with the evidence, and is replaced elsewhere where the rules allow it.
"""

from __future__ import annotations

from collections.abc import Callable

from app.domain.disk import DiskRoom
from app.domain.warm import to_keep
from app.errors import EnvironmentFault, FailureKind, Unavailable
from app.ports import HostPorts, Ports

# An eviction that frees less than this has not helped a disk that is nearly full.
LITTLE_BYTES = 1 << 20
# A claim is one transaction; who gives a bundle up waits so long for those that had begun, or lets it be.
CLAIM_S = 10.0

# Why a mount came to nothing that says nothing of its bundle: who waits for that goes on waiting.
NOT_ITS_FAULT = frozenset({"database_away", "bundle_busy"})

# What of a host's bundles is not given up.
Needed = Callable[[Ports, HostPorts], frozenset[str]]


def due(ports: Ports, host: HostPorts) -> tuple[str, ...]:
    """The bundles to mount now: those that forks wait for here, the oldest fork's first, then those to be kept warm."""
    waiting = ports.warm.needs(host.host_id).waiting
    wanted = dict.fromkeys((*waiting, *_kept(ports, host)))
    warm, now_ns = frozenset(host.bundles.mounted()), ports.clock.boot_ns()
    return tuple(
        each for each in wanted if each not in warm and host.mounts.may_begin(each, now_ns)
    )


def mount(ports: Ports, host: HostPorts, bundle_id: str) -> EnvironmentFault | None:
    """Make one bundle warm here; what kept it from that, if anything did. May take minutes.

    Nothing is done while another thread is at it, or too many mounts go on. Forks that waited for it are rung for,
    whatever came of it.
    """
    if not host.mounts.begin(bundle_id, ports.clock.boot_ns()):
        return None
    try:
        fault = _tried(ports, host, bundle_id)
    finally:
        host.mounts.end(bundle_id)
    waiting = ports.warm.needs(host.host_id).waiting.get(bundle_id, 0)
    if waiting:
        ports.bells.fork(host.host_id, waiting)
    return fault


def shed(ports: Ports, host: HostPorts) -> tuple[str, ...]:
    """With the disk nearly full, give up what nobody needs here, the least recently used first, while that helps."""
    gone: list[str] = []
    if not _is_nearly_full(host):
        host.mounts.fruitless = False
        return ()
    for bundle_id in _dispensable(ports, host, _needed):
        if host.mounts.fruitless or not _is_nearly_full(host):
            break
        before = host.disk.free_bytes()
        if _give_up(ports, host, bundle_id, _needed):
            gone.append(bundle_id)
            host.mounts.fruitless = host.disk.free_bytes() < before + LITTLE_BYTES
    return tuple(gone)


def _tried(ports: Ports, host: HostPorts, bundle_id: str) -> EnvironmentFault | None:
    if not _has_room(ports, host, bundle_id):
        fault = EnvironmentFault(
            FailureKind.SNAPSHOT_UNAVAILABLE,
            f"all {host.mounts_max} bundles that may be mounted here are needed",
            reason="mounts_in_use",
            mounts_max=host.mounts_max,
        )
        host.mounts.failed(bundle_id, fault, ports.clock.boot_ns(), waits=True)
        return fault
    try:
        host.bundles.mount(bundle_id)
    except EnvironmentFault as failed:
        fault = failed
    except Unavailable as away:
        reason = f"it could not be mounted: {away.message}"
        fault = EnvironmentFault(FailureKind.SNAPSHOT_UNAVAILABLE, reason, reason=away.code)
    else:
        host.mounts.done(bundle_id)
        return None
    waits = fault.evidence.get("reason") in NOT_ITS_FAULT
    host.mounts.failed(bundle_id, fault, ports.clock.boot_ns(), waits=waits)
    return fault


def _has_room(ports: Ports, host: HostPorts, bundle_id: str) -> bool:
    """Whether what is coming may be mounted too. What was not used for longest and nobody needs goes for it; for what
    forks wait for, so does what is only kept warm.
    """
    if not host.bundles.stores_elsewhere:
        return True
    waited = bundle_id in ports.warm.needs(host.host_id).waiting
    for needed in (_needed, _used) if waited else (_needed,):
        for each in _dispensable(ports, host, needed):
            if _mounts(ports, host) <= host.mounts_max:
                return True
            _give_up(ports, host, each, needed)
    return _mounts(ports, host) <= host.mounts_max


def _mounts(ports: Ports, host: HostPorts) -> int:
    """How many there will be, with those that are coming. A candidate is a folder of this host's own."""
    candidates = ports.warm.needs(host.host_id).candidates
    return len({*host.bundles.mounted(), *host.mounts.coming()} - candidates)


def _dispensable(ports: Ports, host: HostPorts, needed: Needed) -> tuple[str, ...]:
    """What may be given up, the least recently used first."""
    stays = needed(ports, host) | host.mounts.busy()
    return tuple(each for each in host.bundles.mounted() if each not in stays)


def _give_up(ports: Ports, host: HostPorts, bundle_id: str, needed: Needed) -> bool:
    """Whether it is not here any more. Whoever has claimed from it before is in the rows by then."""
    with host.mounts.leaving(bundle_id):
        if not host.mounts.claims_ended(CLAIM_S):
            return False
        if bundle_id in needed(ports, host) or bundle_id in host.mounts.busy():
            return False
        return host.bundles.evict(bundle_id)


def _needed(ports: Ports, host: HostPorts) -> frozenset[str]:
    return _used(ports, host).union(_kept(ports, host))


def _used(ports: Ports, host: HostPorts) -> frozenset[str]:
    """What forks run on here or wait for, and what is being built."""
    needs = ports.warm.needs(host.host_id)
    return needs.in_use | needs.candidates


def _kept(ports: Ports, host: HostPorts) -> tuple[str, ...]:
    """What this host is to keep warm."""
    targets = ports.warm.list()
    if not targets:
        return ()
    return tuple(each.bundle_id for each in to_keep(targets, ports.hosts.list(), host.host_id))


def _is_nearly_full(host: HostPorts) -> bool:
    return DiskRoom(host.disk.free_bytes(), host.disk_reserve_bytes).nearly_full is True
