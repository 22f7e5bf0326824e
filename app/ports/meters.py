"""What the billing worker does with rows: meters, shares, and what has waited or been held for too long."""

from __future__ import annotations

from typing import Protocol

from app.domain.sequel import Sequel


class Meters(Protocol):
    """What the billing worker does, once a second. Idempotent; two at once are harmless."""

    def accrue(self) -> int:
        """Note on every open attempt what it costs so far (for display); how many are open."""
        ...

    def share(self, run_id: str) -> int:
        """Share a run's pool out by `ledger.share` and extend the leases; micro-dollars moved."""
        ...

    def sharable(self) -> tuple[str, ...]:
        """Live runs with money in the pool and forks below their worst case."""
        ...

    def expire_holds(self) -> tuple[tuple[str, str], ...]:
        """Ask held forks to stop (`hold_expired`) whose time is over, unless another wish came first.

        (claim, attempt_id) of their machines.
        """
        ...

    def overqueued(self) -> tuple[str, ...]:
        """Live runs of which a fork waited past the queue timeout."""
        ...

    def expire_queued(self, run_id: str) -> Sequel | None:
        """End a run's forks that waited past the queue timeout as `no_capacity`, with what was seen of the hosts.

        None if none did.
        """
        ...

    def unsettled(self) -> tuple[str, ...]:
        """Live runs that `settle` would change, the oldest first."""
        ...

    def settle(self, run_id: str) -> Sequel | None:
        """Draw what follows from what hosts wrote of a run's forks; None if no bell follows, or it had ended.

        A placed fork that neither its grant nor the pool can fund its smallest lease ends, and so does one that waits
        and is asked to stop; the pool tops up what it can. If the run's own rule is broken, all of it is stopped. With
        its last fork the run ends, and its project has again what was not charged.
        """
        ...
