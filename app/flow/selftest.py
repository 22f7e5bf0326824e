"""A host in quarantine shows by itself that machines work on it again: it brings one up as a fork is brought up."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from app.domain.machine import RestoreKey
from app.domain.quarantine import Quarantine
from app.errors import EnvironmentFault
from app.flow._trial import brought_up
from app.ports import HostPorts, Ports


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What came of one. `released`: it passed, and the host takes forks again."""

    seen: str
    released: bool


def run(ports: Ports, host: HostPorts) -> SelfTest | None:
    """Test this host if that is due; None if it is not. Takes as long as bringing up two machines at most.

    What is free on this host stays free meanwhile: no fork is placed here.
    """
    begun = ports.hosts.begin_test(host.host_id)
    if begun is None:
        return None
    faults = []
    for bundle_id in _trials(host, begun):
        fault = _fault_of(ports, host, bundle_id)
        if fault is None:
            return _end(ports, host, begun, f"{bundle_id or 'a guest'} came up", passed=True)
        faults.append(f"{bundle_id or 'boot'}: {fault.kind.value}: {fault.message}")
    return _end(ports, host, begun, "; ".join(faults), passed=False)


def _end(ports: Ports, host: HostPorts, begun: Quarantine, seen: str, *, passed: bool) -> SelfTest:
    return SelfTest(seen, ports.hosts.end_test(host.host_id, begun, seen, passed=passed))


def _trials(host: HostPorts, begun: Quarantine) -> tuple[str | None, ...]:
    """What to bring up until something does: the bundle that broke last, and one that did not break here.

    Two, because the one may be at fault itself, and a host that restores the other should not stay out for it: another
    of the same key, for what one QEMU build brings up says nothing of another build's. None is a guest's kernel alone,
    by every build, where no bundle is.
    """
    here = host.bundles.mounted()
    broken = [each for each in begun.bundles if each in here][-1:]
    key = _key_of(host, broken[0]) if broken else None
    others = (each for each in here if each not in begun.bundles)
    alike = (each for each in others if key is None or _key_of(host, each) == key)
    return (*broken, *islice(alike, 1)) or (None,)


def _key_of(host: HostPorts, bundle_id: str) -> RestoreKey | None:
    """None of a bundle that does not open: the trial of it will say why."""
    try:
        return host.bundles.open(bundle_id).restore_key
    except EnvironmentFault:
        return None


def _fault_of(ports: Ports, host: HostPorts, bundle_id: str | None) -> EnvironmentFault | None:
    try:
        if bundle_id is None:
            host.machines.prove()
        else:
            with brought_up(ports, host, host.bundles.open(bundle_id)):
                pass
    except EnvironmentFault as fault:
        return fault
    return None
