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
from workers.mounting import mounting, shed
from workers.pace import JOIN_S, begun
from workers.peers import Peers
from workers.presence import Presence
from workers.reaping import REAP_PERIOD_S, Count, host_reaper, uncounted
from workers.tasks import Workbench

SWEEP_PERIOD_S = 5.0
# A bundle that nobody has read whole yet is read this long after its first fork, at the latest.
INSPECT_PERIOD_S = 2.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Adoption:
    """Machines of worker processes that are gone: the one before this one, and any that ends beside it.

    `living` says whose machines are not to be had. `left` are those that were busy: some process still serves them.
    """

    ports: Ports
    host: HostPorts
    living: Callable[[], frozenset[str]]
    left: frozenset[str] = frozenset()

    def go_on(self) -> None:
        """Take over what can be taken over now."""
        busy = recover.adopt(self.ports, self.host, self.living)
        if busy != self.left:
            log.warning("machines_busy", names=sorted(busy))
        self.left = busy


@contextmanager
def looked_after(
    bench: Workbench, presence: Presence, traces: Traces, count: Count = uncounted
) -> Iterator[None]:
    """Adopt what is left of others; inside, keep leases, obey wishes, and reap what no row owns.

    The host is registered, and this process among its workers.
    """
    ports, host = bench.ports, bench.host
    stop = threading.Event()
    adoption = Adoption(ports, host, Peers(ports.workers, host.host_id, host.claim).living)
    paces = [
        begun("presence", presence.beat, stop),
        begun("host", lambda: recover.watch_host(ports, host), stop),
        begun("sweep", lambda: recover.sweep(ports, host), stop, period_s=SWEEP_PERIOD_S),
        begun("selftest", lambda: _self_test(bench), stop, period_s=SWEEP_PERIOD_S),
        begun("inspect", lambda: inspect.inspect(ports, host), stop, period_s=INSPECT_PERIOD_S),
        begun("shed", lambda: shed(bench), stop, period_s=SWEEP_PERIOD_S),
        begun("reap", host_reaper(ports, host, traces, count).turn, stop, period_s=REAP_PERIOD_S),
        begun("tidy", host.bundles.tidy, stop, period_s=REAP_PERIOD_S),
    ]
    try:
        # With many machines this takes a while, and the host must not look dead meanwhile.
        adoption.go_on()
        paces.append(begun("adopt", adoption.go_on, stop, period_s=SWEEP_PERIOD_S))
        with mounting(bench):
            yield
    finally:
        stop.set()
        for pace in paces:
            pace.join(timeout=JOIN_S)


def _self_test(bench: Workbench) -> None:
    """A test takes up to a minute, so it has a pace of its own; it is due only while this host is in quarantine."""
    tested = None if bench.draining.is_set() else selftest.run(bench.ports, bench.host)
    if tested is not None:
        said = log.info if tested.released else log.warning
        said("host_self_tested", released=tested.released, seen=tested.seen)
