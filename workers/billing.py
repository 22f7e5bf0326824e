"""The billing worker: meters, leases, expiries and whatever a lost bell or a dead worker left behind, once a second."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Protocol

import structlog

from app.domain.measure import Step
from app.flow import bill, recover
from app.ports import Ports
from workers.pace import JOIN_S, begun, stamp, steadily

QUEUES_PERIOD_S = 30.0

log = structlog.get_logger(__name__)


def known() -> bool:
    """Where nobody remembers anything of the database, it is as it always was."""
    return True


class Queues(Protocol):
    """The part of the bells that outlives those who listened for them."""

    def sweep(self, living: Callable[[], frozenset[str]]) -> int: ...


def run(
    ports: Ports, queues: Queues, tick_file: Path, stop: Event, look: Callable[[], bool] = known
) -> None:
    """Tick until `stop` is set. Two at once are harmless; with none at all the cap holds on the leases given so far.

    `look` says whether the database is the one that this process knows: while it is not, nothing is moved.
    """
    sweeping = begun(
        "queues", lambda: queues.sweep(ports.workers.claims), stop, period_s=QUEUES_PERIOD_S
    )
    steadily("billing", lambda: _tick(ports, tick_file, look), stop)
    sweeping.join(timeout=JOIN_S)
    tick_file.unlink(missing_ok=True)


def until_told_to_stop() -> Event:
    """Set by SIGTERM and SIGINT: the turn that runs is finished, no other begins."""
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _tick(ports: Ports, tick_file: Path, look: Callable[[], bool]) -> None:
    """One turn. Its stamp says that every run had its part, though one's may have failed.

    With the database away none had, and nothing is stamped.
    """
    failed: ExceptionGroup[Exception] | None = None
    began_ns = ports.clock.boot_ns()
    if not look():
        stamp(tick_file, began_ns)
        return
    try:
        bill.tick(ports)
    except ExceptionGroup as some:
        failed = some
    recover.tick(ports)
    ended_ns = ports.clock.boot_ns()
    ports.measures.took(Step.BILLING_TICK, ended_ns - began_ns)
    stamp(tick_file, ended_ns)
    if failed is not None:
        raise failed
