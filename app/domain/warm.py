"""Warm targets: a snapshot is kept mounted on at least so many hosts, so that its next forks wait for no mount.

Nobody coordinates it. Every host reads the same rows, decides for itself what it is to keep, and comes to what the
others come to: those that have the bundle already come first, then an order of the hosts that is drawn for each bundle
and never changes. A host that dies leaves the order, and the next one in it mounts what is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from app.domain.machine import Shape
from app.domain.placement import Host, serves, slots_for


@dataclass(frozen=True, slots=True)
class WarmTarget:
    """`ref` (`name@3`) is to be mounted on at least `hosts` hosts.

    `version` None: it was set for the bare name and follows it; `ref`, `bundle_id`, `restore_key` and `shape` are of
    the version that the name means now.
    """

    project_id: str
    name: str
    version: int | None
    hosts: int
    ref: str
    bundle_id: str
    restore_key: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Standing:
    """How a target is met now.

    `warm_on` are the fit hosts that have the bundle mounted, `coming_on` those that are to mount it; `missing` is how
    many more hosts the target wants than could have it, and `unfit` says of each other host why it does not count.
    """

    target: WarmTarget
    warm_on: tuple[str, ...]
    coming_on: tuple[str, ...]
    missing: int
    unfit: tuple[tuple[str, str], ...]

    @property
    def met(self) -> bool:
        return len(self.warm_on) >= self.target.hosts


def to_keep(
    targets: Iterable[WarmTarget], hosts: Iterable[Host], host_id: str
) -> tuple[WarmTarget, ...]:
    """What this host is to have mounted, and not to give up. Every host decides so over the same rows."""
    there = tuple(hosts)
    return tuple(each for each in targets if host_id in _chosen(each, there))


def standing(target: WarmTarget, hosts: Iterable[Host]) -> Standing:
    """How a target is met, and what keeps it from being so."""
    there = tuple(hosts)
    reasons = {host.host_id: unfit(target, host) for host in there}
    fit = [host for host in there if reasons[host.host_id] is None]
    warm = tuple(host.host_id for host in fit if target.bundle_id in host.mounted)
    return Standing(
        target,
        warm_on=warm,
        coming_on=tuple(each for each in _chosen(target, there) if each not in warm),
        missing=max(0, target.hosts - len(fit)),
        unfit=tuple((name, why) for name, why in sorted(reasons.items()) if why is not None),
    )


def unfit(target: WarmTarget, host: Host) -> str | None:
    """Why a host cannot keep a bundle warm now; None when it can, whatever runs on it."""
    if host.unready is not None:
        return host.unready
    if not serves(host, target.restore_key):
        return f"cannot restore {target.restore_key}"
    if slots_for(target.shape, host, free=False) < 1:
        return f"too small for a fork of {target.shape}"
    return dict(host.unmountable).get(target.bundle_id)


def warm_page(standing: Standing) -> dict[str, object]:
    """The JSON shape of the contract: what `snapshots.warm` answers, and `snapshots.get` shows under `warm`."""
    target = standing.target
    return {
        "hosts": target.hosts,
        "snapshot": target.ref,
        "follows_name": target.version is None,
        "met": standing.met,
        "warm_on": list(standing.warm_on),
        "coming_on": list(standing.coming_on),
        "missing": standing.missing,
        "unfit": [{"host": host_id, "reason": why} for host_id, why in standing.unfit],
    }


def _chosen(target: WarmTarget, hosts: Iterable[Host]) -> tuple[str, ...]:
    """The hosts that a target is kept on: as many as it wants, or all that are fit."""
    fit = (host for host in hosts if unfit(target, host) is None)
    first = sorted(fit, key=lambda host: _turn(target.bundle_id, host))
    return tuple(host.host_id for host in first[: target.hosts])


def _turn(bundle_id: str, host: Host) -> tuple[bool, str]:
    """Whose turn it is: who has it, before anyone else; then an order that spreads many bundles over many hosts."""
    drawn = hashlib.sha256(f"{bundle_id} {host.host_id}".encode()).hexdigest()
    return (bundle_id not in host.mounted, drawn)
