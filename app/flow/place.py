"""Settle what hosts closed, and give waiting forks to hosts, in order; then ring those hosts."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from app.domain.placement import choose
from app.errors import Unavailable
from app.flow._settling import settle
from app.ports import Ports

BATCH = 500


def place(ports: Ports) -> None:
    """Place what fits now. A fork that fits nowhere waits; the next place to become free rings again.

    First what follows from the machine whose place became free: a run that it stops wants no places any more.
    """
    for run_id in ports.meters.unsettled():
        # One that others hold is settled with the next bell, or the next tick.
        with suppress(Unavailable):
            settle(ports, run_id)
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
