"""Whose money it is: every decision about a run's budget and its machines' leases.

A budget is always pool + granted + charged (`Purse`) and changes only by moves between the three (`Move`). Pure: the
store reads under the run's lock, asks here, and books what it was told by relative updates; its constraints refuse the
rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.domain.fork import EndReason
from app.domain.money import NS_PER_SECOND, affordable_ns, cost_micros
from app.errors import Conflict

# An extension below this is not worth a write; it also bounds what a tick may leave in the pool.
SMALLEST_EXTENSION_NS = 5 * NS_PER_SECOND
# A host may open an attempt this long after it read its clock; law 8 adds it to the lease before closing by time.
START_WINDOW_NS = 30 * NS_PER_SECOND
CLOSE_MARGIN_NS = 15 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Move:
    """Money that goes from one part of a run's budget to another; none is made or lost."""

    pool_micros: int = 0
    granted_micros: int = 0
    charged_micros: int = 0

    def __post_init__(self) -> None:
        if self.pool_micros + self.granted_micros + self.charged_micros != 0:
            raise ValueError(f"{self} makes or loses money")

    def __add__(self, other: Move) -> Move:
        return Move(
            self.pool_micros + other.pool_micros,
            self.granted_micros + other.granted_micros,
            self.charged_micros + other.charged_micros,
        )


NOTHING = Move()


@dataclass(frozen=True, slots=True)
class Purse:
    """A run's money. Law 1: the parts are the budget, and none is below 0; a purse that breaks it cannot be made."""

    budget_micros: int
    pool_micros: int
    granted_micros: int
    charged_micros: int

    def __post_init__(self) -> None:
        parts = (self.pool_micros, self.granted_micros, self.charged_micros)
        if min(parts) < 0 or sum(parts) != self.budget_micros:
            raise ValueError(f"{self} is no split of its budget")

    def after(self, move: Move) -> Purse:
        """The purse after a move. Raises ValueError where a part has not as much."""
        return Purse(
            self.budget_micros,
            self.pool_micros + move.pool_micros,
            self.granted_micros + move.granted_micros,
            self.charged_micros + move.charged_micros,
        )


@dataclass(frozen=True, slots=True)
class Split:
    """One attempt's charge in its three parts, which add up to it."""

    total_micros: int
    verification_micros: int
    tasks_micros: int
    environment_micros: int


@dataclass(frozen=True, slots=True)
class Settled:
    """What the end of an attempt does to its fork's money.

    A fork that goes on holds `grant_micros` and can use `worst_micros` more at most; a final one holds nothing.
    """

    charged: Move
    topped_up: Move
    returned: Move
    goes_on: bool
    grant_micros: int
    worst_micros: int


@dataclass(frozen=True, slots=True)
class Need:
    """A fork that is not final: what it holds, the most that it can still use, and when its machine's lease ends.

    `lease_ends_ns` is by the database's clock; None while no machine runs. `host_alive` is of the machine's host.
    """

    fork_id: str
    grant_micros: int
    worst_micros: int
    lease_ends_ns: int | None = None
    host_alive: bool = True

    @property
    def lacking_micros(self) -> int:
        return self.worst_micros - self.grant_micros

    def can_use(self, now_ns: int) -> bool:
        """Whether more money would do anything: below its worst case, and its lease, if it has one, is not over.

        A silent host cannot tell its keepers; if it is gone, all that its machines were granted is charged (law 8).
        """
        runs = self.lease_ends_ns is None or (self.host_alive and now_ns < self.lease_ends_ns)
        return runs and self.lacking_micros > 0


def grant(micros: int) -> Move:
    """From the pool to a fork's grant."""
    return Move(pool_micros=-micros, granted_micros=micros)


def give_back(micros: int) -> Move:
    """From a fork's grant to the pool."""
    return Move(pool_micros=micros, granted_micros=-micros)


def equal_grants(budget_micros: int, worsts_micros: tuple[int, ...]) -> tuple[int, ...]:
    """An equal share of the budget for each fork, never above its own worst case; the rest is the pool."""
    share = budget_micros // len(worsts_micros)
    return tuple(min(share, worst) for worst in worsts_micros)


def may_start(grant_micros: int, smallest_micros: int) -> bool:
    """Law 6: a machine starts only on a grant that funds verification and the smallest useful time."""
    return grant_micros >= smallest_micros


def top_up(grant_micros: int, smallest_micros: int, pool_micros: int) -> Move | None:
    """What a grant lacks before a machine may start, from the pool; None if the pool has not as much."""
    lacking = max(0, smallest_micros - grant_micros)
    return grant(lacking) if lacking <= pool_micros else None


def unfunded(*, failed_before: bool) -> EndReason:
    """Why a fork ends that no money lets start: a replacement is what its failure made of it, never `capped`."""
    return EndReason.ENVIRONMENT_FAILED if failed_before else EndReason.RUN_EXHAUSTED


def lease_ns(grant_micros: int, micros_per_hour: int, worst_attempt_ns: int) -> int:
    """How long a machine may live on a grant: so that its whole lease, rounded up once, costs no more."""
    return min(affordable_ns(grant_micros, micros_per_hour), worst_attempt_ns)


def charge(
    lived_ns: int, lease_ns: int, ready_after_ns: int | None, micros_per_hour: int, *, failed: bool
) -> Split:
    """What an attempt costs: its measured life, never more than its lease (a late kill is ours to bear).

    Verification is from restore to ready; an attempt that ended as an environment failure is `environment` whole.
    """
    total = cost_micros(min(max(lived_ns, 0), lease_ns), micros_per_hour)
    if failed:
        return Split(total, 0, 0, total)
    verified_ns = lived_ns if ready_after_ns is None else min(ready_after_ns, lived_ns)
    verification = min(cost_micros(max(verified_ns, 0), micros_per_hour), total)
    return Split(total, verification, total - verification, 0)


def is_environments(reason: EndReason | None, *, failed: bool) -> bool:
    """Whether an attempt is charged as an environment failure: it failed, and not by the task's own doing.

    `reason` is why its fork ends; None where another machine is to go on.
    """
    if reason is EndReason.GUEST_FAULT_BY_TASK:
        return False
    return failed or reason is None or reason is EndReason.ENVIRONMENT_FAILED


def settle(
    split: Split,
    grant_micros: int,
    worst_micros: int,
    smallest_micros: int,
    pool_micros: int,
    *,
    replaced: bool,
) -> Settled:
    """Charge an attempt to its fork's grant. What is left funds the replacement, topped up from the pool.

    Where none is wanted, or grant and pool cannot fund one, the rest is the pool's.
    """
    total = split.total_micros
    charged = Move(granted_micros=-total, charged_micros=total)
    rest = grant_micros - total
    topped_up = top_up(rest, smallest_micros, pool_micros)
    if not replaced or topped_up is None:
        return Settled(charged, NOTHING, give_back(rest), False, 0, worst_micros)
    funded = rest + topped_up.granted_micros
    return Settled(charged, topped_up, NOTHING, True, funded, max(0, worst_micros - total))


def join(pool_micros: int, grants_micros: Iterable[int]) -> Move:
    """The grants of forks that join a run at the end of an attempt. Raises Conflict(pool_exhausted)."""
    grants = tuple(grants_micros)
    if sum(grants) > pool_micros:
        raise Conflict(
            "pool_exhausted",
            f"{len(grants)} forks need {sum(grants)} micro-dollars; {pool_micros} are left",
        )
    return grant(sum(grants))


def smallest_extension_micros(micros_per_hour: int) -> int:
    """The indivisible rest: while a fork wants money, sharing leaves less than this in the pool."""
    return cost_micros(SMALLEST_EXTENSION_NS, micros_per_hour)


def share(
    pool_micros: int, needs: tuple[Need, ...], micros_per_hour: int, now_ns: int
) -> dict[str, int]:
    """Divide the pool among forks below their worst case; additions by fork id, at most the pool in sum.

    Evenly, to no one more than it can use. Where that would leave someone less than a worthwhile extension, whole
    extensions go to those whose lease ends soonest; forks without a machine come last, since no clock runs for them.
    A machine whose lease is over is gone, and gets nothing. One that is about to be killed may get what its host cannot
    tell the keeper in time: that is not lost, but the pool's again at its end, since a charge is of measured life.
    """
    wanting = [need for need in needs if need.can_use(now_ns)]
    smallest = smallest_extension_micros(micros_per_hour)
    if sum(min(smallest, need.lacking_micros) for need in wanting) <= pool_micros:
        return _evenly(pool_micros, wanting)
    return _soonest_first(pool_micros, wanting, smallest)


def may_close_by_time(age_ns: int, lease_ns: int) -> bool:
    """Law 8: an attempt that nobody reported is over only when its keeper must have killed it, by the
    database's time.
    """
    return age_ns > START_WINDOW_NS + lease_ns + CLOSE_MARGIN_NS


def _evenly(pool_micros: int, wanting: list[Need]) -> dict[str, int]:
    added: dict[str, int] = {}
    left = pool_micros
    by_lack = sorted(wanting, key=lambda need: (need.lacking_micros, need.fork_id))
    for position, need in enumerate(by_lack):
        part = min(need.lacking_micros, left // (len(by_lack) - position))
        left -= part
        added[need.fork_id] = part
    return added


def _soonest_first(pool_micros: int, wanting: list[Need], smallest_micros: int) -> dict[str, int]:
    added: dict[str, int] = {}
    left = pool_micros
    for need in sorted(wanting, key=_urgency):
        part = min(smallest_micros, need.lacking_micros)
        if part <= left:
            left -= part
            added[need.fork_id] = part
    return added


def _urgency(need: Need) -> tuple[bool, int, str]:
    ends_ns = need.lease_ends_ns
    return (ends_ns is None, ends_ns or 0, need.fork_id)
