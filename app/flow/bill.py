"""One tick of the billing worker: show what is spent, share what is free, end what is due.

Idempotent, and harmless when two run at once: every move is a transaction of its own under the run's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from app.domain.run import Attempt
from app.errors import Unavailable
from app.flow._claimed import ring_after
from app.flow._settling import ring_sequel, settle
from app.ports import Ports

T = TypeVar("T")


def tick(ports: Ports) -> None:
    """Once a second over all live runs. Each gets its part, whatever becomes of another's.

    Raises an ExceptionGroup of what failed when all is done; Unavailable(database_away) at once if two parts in a row
    found the database away, for every other part would wait for it too.
    """
    parts = _Parts()
    parts.do(ports.meters.accrue)
    for run_id in parts.all(ports.meters.sharable):
        parts.do(partial(ports.meters.share, run_id))
    for claim, attempt_id in parts.all(ports.meters.expire_holds):
        ports.bells.stop(claim, attempt_id)
    for run_id in parts.all(ports.meters.overqueued):
        parts.do(partial(_expire_queued, ports, run_id))
    for attempt in parts.all(ports.attempts.overdue):
        parts.do(partial(_close_by_time, ports, attempt))
    for run_id in parts.all(ports.meters.unsettled):
        parts.do(partial(settle, ports, run_id))
    if parts.failures:
        raise ExceptionGroup("parts of a tick failed", parts.failures)


def _expire_queued(ports: Ports, run_id: str) -> None:
    ring_sequel(ports, ports.meters.expire_queued(run_id))
    ports.bells.place()


def _close_by_time(ports: Ports, attempt: Attempt) -> None:
    closed = ports.attempts.close_by_time(
        attempt.attempt_id, "its host did not report its end, and its lease is long over"
    )
    if closed is not None:
        ring_after(ports, closed)


@dataclass(slots=True)
class _Parts:
    """The parts of one tick, and what became of them."""

    failures: list[Exception] = field(default_factory=list)
    away: bool = False

    def all(self, part: Callable[[], tuple[T, ...]]) -> tuple[T, ...]:
        """What a part finds to be done; nothing if it fails."""
        found: list[T] = []
        self.do(lambda: found.extend(part()))
        return tuple(found)

    def do(self, part: Callable[[], object]) -> None:
        """Do a part, or keep its failure.

        Each is a transaction of its own: of one that failed it is known that it left nothing half done and nothing
        locked, so that the others can go on, and the next tick does it again.
        """
        try:
            part()
        except Exception as error:
            away = isinstance(error, Unavailable) and error.code == "database_away"
            if away and self.away:
                raise
            self.away = away
            self.failures.append(error)
        else:
            self.away = False
