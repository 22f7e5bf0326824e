"""The billing worker moves the fleet, where the operator named one, and says in any case how many hosts are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from app.domain.fleet import Bounds
from app.domain.scaling import Plan
from app.flow.fleet import Memory, Moved, turn
from app.ports import Ports
from app.ports.fleet import Fleet
from workers.pace import Guard, beside, ever

PERIOD_S = 10.0

log = structlog.get_logger(__name__)


class Scaler:
    """Of one process; `turn` is for every few seconds. What is wrong for long is said once."""

    def __init__(
        self, ports: Ports, fleet: Fleet | None, bounds: Bounds, show: Callable[[Plan], None]
    ) -> None:
        self._ports = ports
        self._fleet = fleet
        self._bounds = bounds
        self._show = show
        self._memory = Memory()
        self._told: frozenset[tuple[str, str]] = frozenset()

    def turn(self) -> Moved:
        """Look and move once. Raises Unavailable and CloudRefused where the fleet cannot be read."""
        moved = turn(self._ports, self._fleet, self._bounds, self._memory)
        self._show(moved.plan)
        self._tell(moved)
        return moved

    def _tell(self, moved: Moved) -> None:
        plan = moved.plan
        if plan.desire is not None and moved.fleet is not None:
            log.info("fleet_resized", before=moved.fleet.desired, after=plan.desire)
        for host_id in moved.retired:
            log.info("host_retired", host_id=host_id)
        if moved.closed:
            log.warning("attempts_closed_with_their_instances", attempts=moved.closed)
        wrong = {
            *(("instance_never_registered", name) for name in plan.silent),
            *(("forks_no_host_could_take", f"{count}: {why}") for why, count in plan.hopeless),
            *(("fleet_refused", f"{what}: {why}") for what, why in moved.failures),
        }
        for event, about in sorted(wrong - self._told):
            log.warning(event, about=about)
        self._told = frozenset(wrong)


@contextmanager
def scaled(
    ports: Ports,
    fleet: Fleet | None,
    bounds: Bounds,
    show: Callable[[Plan], None],
    guarded: Guard = ever,
) -> Iterator[None]:
    """Inside, the fleet follows the load, beside whatever else this process does; `guarded` says when rows are to be
    believed.
    """
    turn = guarded(Scaler(ports, fleet, bounds, show).turn)
    with beside("fleet", turn, period_s=PERIOD_S):
        yield
