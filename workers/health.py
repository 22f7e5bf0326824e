"""Once a minute the billing worker says how the deployment stands, in one line of numbers that alarms are set on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import structlog

from app.domain.health import LATELY_NS, Watched
from app.domain.leak import LeakKind
from app.domain.scaling import Plan
from app.flow.health import health
from app.ports import Clock, Ports
from app.ports.census import Censuses
from workers.pace import beside, stamped

PERIOD_S = 60.0
# The name of the line. Terraform's metric filters look for it.
EVENT = "health"

log = structlog.get_logger(__name__)


class Watch:
    """Listens to the other loops of this process, each in a thread of its own, on their way to the metrics."""

    def __init__(self, clock: Clock, tick_file: Path) -> None:
        self._clock = clock
        self._tick_file = tick_file
        self._began_ns = clock.boot_ns()
        self._plan: Plan | None = None
        self._leaked_micros_per_month = 0
        self._leaks_ns: tuple[int, ...] = ()

    def planned(self, tell: Callable[[Plan], None]) -> Callable[[Plan], None]:
        """What tells `tell` of a plan, and remembers it."""

        def hear(plan: Plan) -> None:
            self._plan = plan
            tell(plan)

        return hear

    def leaked(self, tell: Callable[[LeakKind], None]) -> Callable[[LeakKind], None]:
        """What tells `tell` of a leak, and remembers when it was found."""

        def hear(kind: LeakKind) -> None:
            self._leaks_ns = (*self._lately(), self._clock.boot_ns())
            tell(kind)

        return hear

    def owed(self, tell: Callable[[int], None]) -> Callable[[int], None]:
        """What tells `tell` what leaks cost that stay, and remembers it."""

        def hear(micros_per_month: int) -> None:
            self._leaked_micros_per_month = micros_per_month
            tell(micros_per_month)

        return hear

    def watched(self) -> Watched:
        """What was heard so far. A process that has not ticked yet counts from its beginning."""
        stamp = stamped(self._tick_file)
        ticked_ns = max(self._began_ns, stamp[1] if stamp else 0)
        return Watched(
            tick_age_ns=max(0, self._clock.boot_ns() - ticked_ns),
            leaks=len(self._lately()),
            leaked_micros_per_month=self._leaked_micros_per_month,
            plan=self._plan,
        )

    def _lately(self) -> tuple[int, ...]:
        since_ns = self._clock.boot_ns() - LATELY_NS
        return tuple(found_ns for found_ns in self._leaks_ns if found_ns >= since_ns)


def tell(ports: Ports, censuses: Censuses, watch: Watch) -> None:
    """Say it once. Raises Unavailable(database_away), and then says nothing, which is an alarm of its own."""
    numbers = asdict(health(ports, censuses, watch.watched()))
    log.info(EVENT, **{name: value for name, value in numbers.items() if value is not None})


@contextmanager
def told(ports: Ports, censuses: Censuses, watch: Watch) -> Iterator[None]:
    """Inside it is said, beside whatever else this process does."""
    with beside("health", lambda: tell(ports, censuses, watch), period_s=PERIOD_S):
        yield
