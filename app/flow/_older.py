"""Which machines of a host the database of this epoch has no say over: shared by `epoch` and `leaks`."""

from __future__ import annotations

from app.domain.deployment import FIRST_EPOCH
from app.domain.machine import Handle
from app.domain.trial import trial_goes_on
from app.ports import HostPorts, Ports


def is_older(machine: Handle, epoch: int, now_boot_ns: int) -> bool:
    """Whether a machine was started in an earlier epoch. What tells none was, unless it is a trial of ours."""
    if machine.epoch is None and trial_goes_on(machine.name, now_boot_ns):
        return False
    return (machine.epoch or FIRST_EPOCH) < epoch


def unknown(ports: Ports, host: HostPorts, known: frozenset[str] = frozenset()) -> frozenset[str]:
    """Machines that live here by an attempt which the database has never had: it was there before they were, so the
    database has lost it. Those `known` to have one are not asked for, nor those of an earlier epoch: that it was lost
    has been said, and they are to end.
    """
    # The machines first: the row of one that is started meanwhile is there before it is.
    live = tuple(host.machines.live())
    now = ports.deployments.now().epoch
    started = {each.name for each in live if each.epoch is not None and each.epoch >= now} - known
    return frozenset(name for name in started if ports.attempts.get(name) is None)
