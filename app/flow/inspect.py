"""Read in the background what no fork waits for: all of each bundle in use here. One that changed ends its forks."""

from __future__ import annotations

from contextlib import suppress

from app.domain.failure import Phase
from app.domain.fork import ForkState
from app.domain.run import Claimed, Role
from app.errors import EnvironmentFault
from app.flow._claimed import fail, late_results_dropped
from app.ports import HostPorts, Ports

PHASES = {ForkState.RESTORING: Phase.RESTORE, ForkState.CHECKING: Phase.TEST}


def inspect(ports: Ports, host: HostPorts) -> None:
    """Now and then on each host. Whatever a fork of a bundle that does not hold has done, it is not to be trusted.

    Those that other worker processes of this host hold, they end themselves.
    """
    for bundle_id in host.bundles.unread():
        with suppress(EnvironmentFault):  # what does not hold is among the refused from now on
            host.bundles.read(bundle_id)
    refused = dict(host.bundles.refused())
    if not refused:
        return
    for claimed in ports.attempts.held_by(host.host_id):
        fault = refused.get(claimed.fork.bundle_id)
        if fault is not None and _is_ours(host, claimed):
            with late_results_dropped():
                fail(ports, host, claimed, fault, PHASES.get(claimed.fork.state, Phase.EXEC))


def _is_ours(host: HostPorts, claimed: Claimed) -> bool:
    return claimed.attempt.claim == host.claim and claimed.fork.role is Role.FORK
