"""A host in quarantine shows by itself that machines work on it again: it brings one up as a fork is brought up."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass
from itertools import islice

from app.domain.checks import at_barrier, marker_exit, on_channel, refuse_unsound
from app.domain.ledger import START_WINDOW_NS
from app.domain.machine import Bundle, Deadline, Identity, RestoreKey
from app.domain.placement import slots_for
from app.domain.quarantine import SELF_TEST_NS, Quarantine, self_test_name
from app.errors import EnvironmentFault, FailureKind
from app.ports import HostPorts, Ports

STEP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What came of one. `released`: it passed, and the host takes forks again."""

    seen: str
    released: bool


def run(ports: Ports, host: HostPorts) -> SelfTest | None:
    """Test this host if that is due; None if it is not. Takes as long as bringing up two machines at most.

    It costs no run anything: the machine has a deadline of its own, and its name says when that is, so that a reaper
    leaves it alone until then and no crash leaves it for longer.
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
            _bring_up(ports, host, host.bundles.open(bundle_id))
    except EnvironmentFault as fault:
        return fault
    return None


def _bring_up(ports: Ports, host: HostPorts, bundle: Bundle) -> None:
    """Restore, barrier, contract; then nothing of the machine is left, whatever happened."""
    _need_room(ports, host, bundle)
    now_ns = ports.clock.boot_ns()
    deadline = Deadline(now_ns + SELF_TEST_NS, now_ns + START_WINDOW_NS)
    name = self_test_name(deadline.boot_ns, secrets.token_hex(6))
    try:
        host.machines.restore(name, bundle, deadline)
        _barrier(ports, host, name, bundle)
        _contract(ports, host, name, bundle)
    finally:
        host.machines.kill(name)
        host.guest.close(name)
        host.machines.forget(name)


def _need_room(ports: Ports, host: HostPorts, bundle: Bundle) -> None:
    """What runs here goes on, and a test takes none of its room. What is free stays free: no fork is placed here."""
    for row in ports.hosts.list():
        if row.host_id == host.host_id and slots_for(bundle.shape, row, free=True) < 1:
            raise EnvironmentFault(
                FailureKind.NO_CAPACITY, "there is no room for it beside the forks that go on here"
            )


def _barrier(ports: Ports, host: HostPorts, name: str, bundle: Bundle) -> None:
    told = Identity(
        fork_id=name,
        hostname=name,
        generation=str(uuid.uuid4()),
        machine_id=secrets.token_hex(16),
        nonce=secrets.token_hex(16),
        entropy=secrets.token_bytes(64),
        wall_ns=ports.clock.wall_ns(),
    )
    began = ports.clock.boot_ns()
    host.guest.attach(name)
    awake = host.guest.wake(name, told, STEP_TIMEOUT_S)
    seconds = (ports.clock.boot_ns() - began) / 1e9
    refuse_unsound(at_barrier(awake, told, bundle.boot_id, seconds))


def _contract(ports: Ports, host: HostPorts, name: str, bundle: Bundle) -> None:
    marker = secrets.token_hex(16)
    began = ports.clock.boot_ns()
    host.guest.open(name, STEP_TIMEOUT_S)
    probe = host.guest.probe(name, marker, marker_exit(marker), STEP_TIMEOUT_S)
    seconds = (ports.clock.boot_ns() - began) / 1e9
    refuse_unsound(on_channel(probe, marker, bundle.disk_id, (), seconds))
