"""Who comes by regularly and makes away with what nobody owns: on each host, and for the deployment as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event

import structlog

from app.domain.leak import Leak, LeakKind, confirmed
from app.domain.money import usd
from app.errors import PromigenceError
from app.flow import cloud_leaks, leaks
from app.flow.retention import DAY_NS, forget
from app.ports import HostPorts, Ports
from app.ports.leaks import RowLeaks, Traces
from workers.pace import JOIN_S, Guard, begun, ever

REAP_PERIOD_S = 30.0
BLOBS_PERIOD_S = 3600.0
# A look is two requests of the account's API, whose rate all hosts share.
CLOUD_PERIOD_S = 60.0
FORGET_PERIOD_S = 3600.0
AUDIT_KEPT_NS = 90 * DAY_NS

# Told of each leak that is found, once.
Count = Callable[[LeakKind], None]
# Told at each look what the leaks that are still there cost a month, in micro-dollars.
Owed = Callable[[int], None]

log = structlog.get_logger(__name__)


def uncounted(_: LeakKind) -> None:
    """Where nobody asks how many."""


def unpaid(_: int) -> None:
    """Where nobody asks what they cost."""


class Reaper:
    """Mends what two looks in a row call a leak; says and counts each once, however often it comes by."""

    def __init__(
        self,
        look: Callable[[], frozenset[Leak]],
        mend: Callable[[Leak], bool],
        count: Count,
        owed: Owed = unpaid,
    ) -> None:
        self._look = look
        self._mend = mend
        self._count = count
        self._owed = owed
        self._before: frozenset[Leak] = frozenset()
        self._told: frozenset[Leak] = frozenset()

    def turn(self) -> None:
        """Come by once. Raises Unavailable where it cannot look, and then does nothing."""
        now = self._look()
        sure = confirmed(self._before, now)
        owed = 0
        for leak in sure:
            mended = self._mended(leak)
            owed += 0 if mended else leak.micros_per_month or 0
            if leak not in self._told:
                self._count(leak.kind)
                log.warning("leak", **_told(leak), mended=mended)
        self._owed(owed)
        # Of what could not be mended nothing more is said until it has been away.
        self._told = frozenset(sure)
        self._before = now

    def _mended(self, leak: Leak) -> bool:
        try:
            return self._mend(leak)
        except PromigenceError as error:
            log.warning("leak_stays", kind=leak.kind.value, name=leak.name, code=error.code)
            return False


def _told(leak: Leak) -> dict[str, object]:
    told: dict[str, object] = {"kind": leak.kind.value, "name": leak.name, "detail": leak.detail}
    if leak.micros_per_month is not None:
        told["usd_per_month"] = usd(leak.micros_per_month)
    return told


def host_reaper(
    ports: Ports,
    host: HostPorts,
    traces: Traces,
    count: Count = uncounted,
    spared: Callable[[], frozenset[str]] = frozenset,
) -> Reaper:
    """For what lies about on this host; `spared` are bundles from before a restore of the database."""
    return Reaper(
        lambda: leaks.on_host(ports, host, traces, spared()),
        partial(leaks.mend_on_host, host, traces),
        count,
    )


@contextmanager
def deployment_reaped(
    ports: Ports,
    rows: RowLeaks,
    queue: Traces,
    count: Count = uncounted,
    uploads: Traces | None = None,
    owed: Owed = unpaid,
    *,
    audit_kept_ns: int = AUDIT_KEPT_NS,
    guarded: Guard = ever,
) -> Iterator[None]:
    """Inside, rows, queue, blobs and the cloud account are looked after, beside whatever else this process does; and
    entries of the audit log are kept so long. `guarded` says when rows are to be believed.
    """
    mend = partial(leaks.mend_in_deployment, ports, rows, queue, uploads=uploads)
    often = Reaper(partial(leaks.in_deployment, rows, queue), mend, count)
    seldom = Reaper(partial(leaks.of_blobs, ports, rows, uploads), mend, count)
    account = Reaper(
        partial(cloud_leaks.in_account, ports, rows),
        partial(cloud_leaks.mend_in_account, ports, rows),
        count,
        owed,
    )
    stop = Event()
    threads = [
        begun(name, guarded(turn), stop, period_s=period_s)
        for name, turn, period_s in (
            ("reap", often.turn, REAP_PERIOD_S),
            ("blobs", seldom.turn, BLOBS_PERIOD_S),
            ("account", account.turn, CLOUD_PERIOD_S),
            ("forget", partial(forget, ports, audit_kept_ns), FORGET_PERIOD_S),
        )
    ]
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=JOIN_S)
