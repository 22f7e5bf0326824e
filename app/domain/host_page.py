"""A host as people and programs read it, over the API and at the operator's command line."""

from __future__ import annotations

from collections.abc import Container

from app.domain.instant import instant
from app.domain.money import NS_PER_SECOND
from app.domain.placement import Host
from app.domain.quarantine import Quarantine


def host_page(host: Host, own: Container[str] | None = None) -> dict[str, object]:
    """The JSON shape of the contract; of the bundles those in `own`, or all for an operator."""
    seen = host.fingerprint
    return {
        "host_id": host.host_id,
        "state": state_of(host),
        "quarantine": None
        if host.quarantine is None
        else _told(host.quarantine, all_of_it=own is None),
        "accelerator": seen.accelerator.value,
        "accelerator_reason": seen.accelerator_reason,
        "cpu_model": seen.cpu_model,
        "vcpus": seen.vcpus,
        "memory_mib": seen.memory_mib,
        "disk_gib": seen.disk_gib,
        "slots": host.slots,
        "slots_free": host.free_slots,
        "zone": host.zone,
        "gone_at": None if host.gone_at_ns is None else instant(host.gone_at_ns),
        "fetches": host.fetches,
        "unready": host.unready,
        "disk_left_bytes": host.disk_free_bytes,
        "restore_keys": [str(key) for key in seen.restore_keys],
        "mounted": [each for each in host.mounted if own is None or each in own],
        "unmountable": {each: why for each, why in host.unmountable if own is None or each in own},
        "missing": list(seen.missing),
        "heartbeat_age_seconds": round(host.heartbeat_age_ns / NS_PER_SECOND, 3),
    }


def state_of(host: Host) -> str:
    """One word: what is worse hides what is less bad."""
    if not host.alive:
        return "lost"
    if host.quarantine is not None:
        return "quarantined"
    if host.leaves:
        return "draining"
    return "disk_low" if host.disk_nearly_full else "up"


def _told(quarantine: Quarantine, *, all_of_it: bool) -> dict[str, object]:
    return {
        "reason": quarantine.reason,
        "kinds": [kind.value for kind in quarantine.kinds],
        "since": instant(quarantine.since_ns),
        "by_operator": quarantine.by_operator,
        # It names bundles, whosever they are.
        "last_test": quarantine.last_test if all_of_it else None,
    }
