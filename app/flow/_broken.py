"""A channel of a machine broke: it is tried again where the guest answers, else what was behind it is looked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from app.domain.machine import Death, DeathCause
from app.domain.money import NS_PER_SECOND
from app.domain.run import Attempt, Claimed, Role
from app.errors import EnvironmentFault, FailureKind
from app.ports import HostPorts, Ports

PING_TIMEOUT_S = 10.0
# A channel that breaks though the guest answers is no end of anything: so often in all it is tried.
CHANNEL_TRIES = 3
CHANNEL_FAULTS = frozenset({FailureKind.GUEST_LOST, FailureKind.GUEST_HUNG})
# What is left of machines whose host went down under them.
LEFT_BEHIND = frozenset({None, DeathCause.KEEPER_LOST, DeathCause.ASKED})

# How long an end waits for the database; afterwards recovery comes to it again, and knows less of it.
PATIENCE_NS = 60 * NS_PER_SECOND

T = TypeVar("T")


def over_channel(host: HostPorts, name: str, act: Callable[[], T]) -> T:
    """Do what is safe twice over a machine's channel; again, a few times, if that broke and the guest answers.

    Raises what `act` raises.
    """
    for _ in range(CHANNEL_TRIES - 1):
        try:
            return act()
        except EnvironmentFault as fault:
            if fault.kind not in CHANNEL_FAULTS or not answers(host, name):
                raise
    return act()


def answers(host: HostPorts, name: str) -> bool:
    """Whether a machine lives and its guest answers."""
    if host.machines.death(name) is not None:
        return False
    try:
        host.guest.ping(name, PING_TIMEOUT_S)
    except EnvironmentFault:
        return False
    return True


def is_being_ended(ports: Ports, host: HostPorts, attempt: Attempt) -> bool:
    """Another step of ours has just ended the machine, and says why as soon as the database lets it.

    None of an earlier boot of the host does: whoever ended it went down with it.
    """
    death = host.machines.death(attempt.attempt_id)
    if death is None or death.cause is not DeathCause.ASKED:
        return False
    if attempt.boot_id != ports.clock.boot_id():
        return False
    return ports.clock.boot_ns() <= death.ended_boot_ns + PATIENCE_NS


def is_left_to_another(
    ports: Ports, host: HostPorts, claimed: Claimed, fault: EnvironmentFault
) -> bool:
    """Whether a channel broke only because another step of ours ends the machine. A template's never: one thread has
    it, and ends its machine itself to freeze it.
    """
    if fault.kind not in CHANNEL_FAULTS or claimed.fork.role is Role.TEMPLATE:
        return False
    return is_being_ended(ports, host, claimed.attempt)


@dataclass(frozen=True, slots=True)
class Silence:
    """How a machine stood when a channel of it broke. `by_host`: it could not have answered, whatever is inside."""

    evidence: dict[str, object] = field(default_factory=dict)
    by_host: bool = False


def silence_behind(host: HostPorts, name: str, fault: EnvironmentFault, exec_id: str) -> Silence:
    """Look at a machine before it is ended for being silent: did it stand still, or have no processor, since its
    command began? Nobody inside can do that to it.
    """
    if fault.kind not in CHANNEL_FAULTS:
        return Silence()
    seen, strain = host.machines.vitals(name), host.machines.strain(name, exec_id)
    told = {**seen.as_evidence(), "strain": strain.as_evidence()}
    return Silence(told, seen.is_stopped or strain.silenced)


def seen_behind(
    ports: Ports, host: HostPorts, claimed: Claimed, fault: EnvironmentFault
) -> EnvironmentFault:
    """What broke a channel, where it was not the guest: its host, the host's disk, or a worker of ours."""
    name = claimed.attempt.attempt_id
    if fault.kind not in CHANNEL_FAULTS:
        return fault
    death = host.machines.death(name)
    cause = None if death is None else death.cause
    seen = {"met": fault.message, **fault.evidence}
    if claimed.attempt.boot_id != ports.clock.boot_id() and cause in LEFT_BEHIND:
        return EnvironmentFault(FailureKind.HOST_LOST, "its host was started anew", **seen)
    if cause is DeathCause.ASKED and host.machines.vitals(name).is_stopped:
        return fault  # another thread of ours has just ended it, for the same silence
    if cause is DeathCause.ASKED:
        why = "its worker ended the machine, and could not say why"
        return EnvironmentFault(FailureKind.WORKER_LOST, why, **seen)
    if death is None and name not in host.machines.known():
        why = "its worker ended, and nothing of the machine is left"
        return EnvironmentFault(FailureKind.WORKER_LOST, why, **seen)
    return full_disk(host, name) or fault


def full_disk(host: HostPorts, name: str) -> EnvironmentFault | None:
    """A machine whose overlay found no room stands still, and its command's clock with it: no end would ever come."""
    for event in host.machines.events(name):
        if event.name == "BLOCK_IO_ERROR" and event.data.get("nospace"):
            return EnvironmentFault(
                FailureKind.HOST_DISK_FULL,
                "the host's disk is full: the machine was stopped at a write",
                event=event.data,
            )
    return None


def death_behind(host: HostPorts, name: str, fault: EnvironmentFault) -> Death | None:
    """A broken channel says nothing by itself: what the keeper and the monitor saw of the machine names the fault.

    A machine that lives and does not answer is ended for that. Any other fault that we ended the machine for keeps
    its own name.
    """
    if fault.kind in CHANNEL_FAULTS:
        return host.machines.kill(name)
    death = host.machines.death(name)
    return None if death is not None and death.cause is DeathCause.ASKED else death
