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
from workers.standing import HostStanding
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
    bench: Workbench,
    presence: Presence,
    standing: HostStanding,
    traces: Traces,
    count: Count = uncounted,
) -> Iterator[None]:
    """Adopt what is left of others; inside, keep leases, obey wishes, and reap what no row owns.

    The host is registered, this process among its workers, and its standing has begun.
    """
    ports, host = bench.ports, bench.host
    stop = threading.Event()
    adoption = Adoption(ports, host, Peers(ports.workers, host.host_id, host.claim).living)
    reaper = host_reaper(ports, host, traces, count, standing.spared)

    def adopt() -> None:
        """Of what is from before a restore of the database nothing is taken over."""
        standing.settle(adoption.living)
        adoption.go_on()

    def begin(name: str, act: Callable[[], object], period_s: float = 1.0) -> threading.Thread:
        return begun(name, bench.unless_astray(act), stop, period_s=period_s)

    paces = [
        begun("presence", presence.beat, stop),
        begin("host", lambda: recover.watch_host(ports, host)),
        begin("sweep", lambda: recover.sweep(ports, host), SWEEP_PERIOD_S),
        begin("selftest", lambda: _self_test(bench), SWEEP_PERIOD_S),
        begin("inspect", lambda: inspect.inspect(ports, host), INSPECT_PERIOD_S),
        begin("shed", lambda: shed(bench), SWEEP_PERIOD_S),
        begin("reap", reaper.turn, REAP_PERIOD_S),
        begin("tidy", host.bundles.tidy, REAP_PERIOD_S),
    ]
    try:
        # With many machines this takes a while, and the host must not look dead meanwhile.
        bench.unless_astray(adopt)()
        paces += [
            begin("adopt", adopt, SWEEP_PERIOD_S),
            # Also while nothing else is done: what was not to be believed may have ended.
            begun("lost", standing.look_for_lost, stop, period_s=SWEEP_PERIOD_S),
        ]
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
