"""The billing worker lets the instances of its fleet in, each with logins of its own, and shuts out what is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import Event

import structlog

from app.domain.leak import LeakKind
from app.flow import admit
from app.ports import Ports
from app.ports.access import Access
from app.ports.fleet import Fleet
from workers.pace import JOIN_S, Guard, begun, ever
from workers.reaping import Reaper

# An instance boots for longer than this; whoever waits for its secret asks as often.
PERIOD_S = 10.0
STRANGERS_PERIOD_S = 60.0
# Well beyond a turn; who died in one keeps the next out for so long.
ALONE_S = 120

# Whether nobody else does this, for so many seconds at most; see `infra/queue/bells.py`.
Alone = Callable[[str, int], AbstractContextManager[bool]]

log = structlog.get_logger(__name__)


class Doorkeeper:
    """Of one process; `turn` is for every few seconds. What fails for long is said once."""

    def __init__(self, access: Access, fleet: Fleet, alone: Alone) -> None:
        self._access = access
        self._fleet = fleet
        self._alone = alone
        self._told: frozenset[tuple[str, str]] = frozenset()

    def turn(self) -> admit.Moved | None:
        """Look and let in once; None where another billing worker does. Raises Unavailable and CloudRefused where
        fleet, stores or the queue do not answer.
        """
        with self._alone("doors", ALONE_S) as alone:
            if not alone:
                return None
            moved = admit.turn(self._access, self._fleet)
        self._tell(moved)
        return moved

    def _tell(self, moved: admit.Moved) -> None:
        for host_id in moved.admitted:
            log.info("host_admitted", host_id=host_id)
        for host_id in moved.expelled:
            log.info("host_expelled", host_id=host_id)
        wrong = frozenset(moved.failures)
        for host_id, why in sorted(wrong - self._told):
            log.warning("host_not_admitted", host_id=host_id, why=why)
        self._told = wrong


@contextmanager
def doors_kept(
    ports: Ports,
    access: Access | None,
    fleet: Fleet | None,
    alone: Alone,
    count: Callable[[LeakKind], None],
    guarded: Guard = ever,
) -> Iterator[None]:
    """Inside, hosts come and go by logins of their own, beside whatever else this process does; without `access` all
    have the control plane's. `guarded` says when rows are to be believed.
    """
    if access is None:
        yield
        return
    stop, memory = Event(), admit.Memory()
    strangers = Reaper(
        partial(admit.strangers, ports, access, fleet, memory),
        partial(admit.mend, ports, access, fleet, memory),
        count,
    )
    threads = [begun("strangers", guarded(strangers.turn), stop, period_s=STRANGERS_PERIOD_S)]
    if fleet is not None and access.secrets is not None:
        keeper = Doorkeeper(access, fleet, alone)
        threads.append(begun("doors", guarded(keeper.turn), stop, period_s=PERIOD_S))
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=JOIN_S)
