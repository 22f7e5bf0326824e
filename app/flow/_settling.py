"""Runs settled after their hosts closed attempts, and the bells that follow."""

from __future__ import annotations

from app.domain.sequel import Sequel
from app.ports import Ports


def settle(ports: Ports, run_id: str) -> None:
    """Settle one run, and ring. Raises Unavailable(database_busy) while others hold what it needs."""
    ring_sequel(ports, ports.meters.settle(run_id))


def ring_sequel(ports: Ports, sequel: Sequel | None) -> None:
    """Whoever waits for the run's end hears of it, a build goes on, the machines that its rule stops are ended."""
    if sequel is None:
        return
    if sequel.run_ended:
        ports.bells.woken(sequel.run_id)
    if sequel.build_id is not None and sequel.host_id is not None:
        ports.bells.verify(sequel.host_id, sequel.build_id)
    for attempt in sequel.stopping:
        ports.bells.stop(attempt.claim, attempt.attempt_id)
