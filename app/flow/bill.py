"""One tick of the billing worker: show what is spent, share what is free, end what is due.

Idempotent, and harmless when two run at once: every move is a transaction of its own under the run's lock.
"""

from __future__ import annotations

from app.flow._claimed import ring_after
from app.ports import Ports


def tick(ports: Ports) -> None:
    """Once a second over all live runs."""
    ports.meters.accrue()
    for run_id in ports.meters.sharable():
        ports.meters.share(run_id)
    _expire_holds(ports)
    for closed in ports.meters.expire_queued():
        ring_after(ports, closed, "")
    _close_by_time(ports)


def _expire_holds(ports: Ports) -> None:
    for meter in ports.meters.open():
        if meter.ready_age_ns is None or meter.hold_ns is None:
            continue
        if meter.ready_age_ns >= meter.hold_ns:
            ports.meters.expire_hold(meter.fork_id)
            ports.bells.stop(meter.host_id, meter.attempt_id)


def _close_by_time(ports: Ports) -> None:
    for attempt in ports.attempts.overdue():
        closed = ports.attempts.close_by_time(
            attempt.attempt_id, "its host did not report its end, and its lease is long over"
        )
        if closed is not None:
            ring_after(ports, closed, attempt.host_id)
