"""The billing worker: meters, leases, expiries and whatever a lost bell or a dead worker left behind, once a second."""

from __future__ import annotations

import signal
from pathlib import Path
from threading import Event

import structlog

from app.flow import bill, recover
from app.ports import Ports
from workers.pace import stamp, steadily

log = structlog.get_logger(__name__)


def run(ports: Ports, tick_file: Path, stop: Event) -> None:
    """Tick until `stop` is set. Two at once are harmless; with none at all the cap holds on the leases given so far."""
    steadily("billing", lambda: _tick(ports, tick_file), stop)
    tick_file.unlink(missing_ok=True)


def until_told_to_stop() -> Event:
    """Set by SIGTERM and SIGINT: the turn that runs is finished, no other begins."""
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _tick(ports: Ports, tick_file: Path) -> None:
    """One turn. Its stamp says that every run had its part, though one's may have failed.

    With the database away none had, and nothing is stamped.
    """
    failed: ExceptionGroup[Exception] | None = None
    try:
        bill.tick(ports)
    except ExceptionGroup as some:
        failed = some
    recover.tick(ports)
    stamp(tick_file, ports.clock.boot_ns())
    if failed is not None:
        raise failed
