"""What a host worker does beside its tasks: it adopts what the one before it left, and looks after its machines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from app.flow import inspect, recover, selftest
from app.ports import HostPorts, Ports
from app.ports.leaks import Traces
from workers.pace import steadily
from workers.reaping import REAP_PERIOD_S, host_reaper

SWEEP_PERIOD_S = 5.0
# A bundle that nobody has read whole yet is read this long after its first fork, at the latest.
INSPECT_PERIOD_S = 2.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Adoption:
    """Machines of the worker before this one. `left` are those that were busy: another process still serves them."""

    ports: Ports
    host: HostPorts
    left: frozenset[str] = frozenset()

    def begin(self) -> None:
        """Take over what can be taken over now."""
        self._note(recover.adopt(self.ports, self.host))

    def go_on(self) -> None:
        """Come back to those that were busy."""
        if self.left:
            self._note(recover.adopt(self.ports, self.host, self.left))

    def _note(self, busy: frozenset[str]) -> None:
        if busy != self.left:
            log.warning("machines_busy", names=sorted(busy))
        self.left = busy


@contextmanager
def looked_after(ports: Ports, host: HostPorts, traces: Traces, slots: int) -> Iterator[None]:
    """Register this host and adopt its machines; inside, keep leases, obey wishes, and reap what no row owns."""
    ports.hosts.register(host.machines.fingerprint(), slots)
    stop = threading.Event()
    adoption = Adoption(ports, host)
    paces = [
        _pace("host", lambda: recover.watch_host(ports, host), stop, 1.0),
        _pace("sweep", lambda: recover.sweep(ports, host), stop, SWEEP_PERIOD_S),
        _pace("adopt", adoption.go_on, stop, SWEEP_PERIOD_S),
        _pace("selftest", lambda: _self_test(ports, host), stop, SWEEP_PERIOD_S),
        _pace("inspect", lambda: inspect.inspect(ports, host), stop, INSPECT_PERIOD_S),
        _pace("reap", host_reaper(ports, host, traces).turn, stop, REAP_PERIOD_S),
    ]
    try:
        # With many machines this takes a while, and the host must not look dead meanwhile.
        adoption.begin()
        yield
    finally:
        stop.set()
        for pace in paces:
            pace.join(timeout=5)


def _self_test(ports: Ports, host: HostPorts) -> None:
    """A test takes up to a minute, so it has a pace of its own; it is due only while this host is in quarantine."""
    tested = selftest.run(ports, host)
    if tested is not None:
        said = log.info if tested.released else log.warning
        said("host_self_tested", released=tested.released, seen=tested.seen)


def _pace(
    name: str, act: Callable[[], object], stop: threading.Event, period_s: float
) -> threading.Thread:
    thread = threading.Thread(
        target=steadily,
        args=(name, act, stop),
        kwargs={"period_s": period_s},
        name=name,
        daemon=True,
    )
    thread.start()
    return thread
