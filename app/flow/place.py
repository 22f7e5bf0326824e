"""Settle what hosts closed, and give waiting forks to hosts, in order; then ring those hosts."""

from __future__ import annotations

from collections import Counter

from app.domain.placement import choose
from app.errors import Unavailable
from app.flow._settling import settle
from app.ports import Ports

BATCH = 500


def place(ports: Ports) -> None:
    """Place what fits now. A fork that fits nowhere waits; the next place to become free rings again.

    First what follows from the machine whose place became free: a run that it stops wants no places any more.
    """
    _settle(ports)
    waiting = ports.hosts.waiting(BATCH)
    if not waiting:
        return
    placed = ports.hosts.assign(choose(waiting, ports.hosts.list(), ports.limits.placement))
    for each in placed:
        if each.build_id is not None:
            ports.bells.build(each.host_id, each.build_id)
    counts = Counter(each.host_id for each in placed if each.build_id is None)
    for host_id, count in counts.items():
        ports.bells.fork(host_id, count)


def _settle(ports: Ports) -> None:
    """Each run that needs it, whatever becomes of another's: nobody's fork waits for a place because of it."""
    for run_id in ports.meters.unsettled():
        try:
            settle(ports, run_id)
        except Exception as error:
            # A transaction of its own: what failed left nothing half done. The next tick does it again, and says why
            # it could not; without the database nothing here can be done.
            if isinstance(error, Unavailable) and error.code == "database_away":
                raise
