"""Give waiting forks to hosts, in order; then ring those hosts."""

from __future__ import annotations

from collections import Counter

from app.domain.placement import choose
from app.ports import Ports

BATCH = 500


def place(ports: Ports) -> None:
    """Place what fits now. A fork that fits nowhere waits; the next place to become free rings again."""
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
