"""Whose money it is: a run's budget is always pool + granted + charged, and leases are what grants can fund.

Pure: the store applies these figures by relative updates under the run's lock, and its constraints refuse what would
break the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.money import NS_PER_SECOND, affordable_ns, cost_micros

# An extension below this is not worth a write; it also bounds what a tick may leave in the pool.
SMALLEST_EXTENSION_NS = 5 * NS_PER_SECOND
# A host may open an attempt this long after it read its clock; law 8 adds it to the lease before closing by time.
START_WINDOW_NS = 30 * NS_PER_SECOND
CLOSE_MARGIN_NS = 15 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Split:
    """One attempt's charge in its three parts, which add up to it."""

    total_micros: int
    verification_micros: int
    tasks_micros: int
    environment_micros: int


@dataclass(frozen=True, slots=True)
class Need:
    """A fork that is not final: what it holds and the most that it can still use."""

    fork_id: str
    grant_micros: int
    worst_micros: int


def equal_grants(budget_micros: int, worsts_micros: tuple[int, ...]) -> tuple[int, ...]:
    """An equal share of the budget for each fork, never above its own worst case; the rest is the pool."""
    share = budget_micros // len(worsts_micros)
    return tuple(min(share, worst) for worst in worsts_micros)


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


def share(pool_micros: int, needs: tuple[Need, ...], micros_per_hour: int) -> dict[str, int]:
    """Divide the pool among forks below their worst case: evenly, to no one more than it can use.

    Returns additions by fork id, at most the pool in sum; empty when an even part would not fund a
    worthwhile extension.
    """
    wanting = sorted(
        (need.worst_micros - need.grant_micros, need.fork_id)
        for need in needs
        if need.worst_micros > need.grant_micros
    )
    smallest = cost_micros(SMALLEST_EXTENSION_NS, micros_per_hour)
    if not wanting or pool_micros // len(wanting) < min(smallest, wanting[0][0]):
        return {}
    added: dict[str, int] = {}
    left = pool_micros
    for position, (lacking, fork_id) in enumerate(wanting):
        part = min(lacking, left // (len(wanting) - position))
        left -= part
        added[fork_id] = part
    return {fork_id: part for fork_id, part in added.items() if part > 0}


def may_close_by_time(age_ns: int, lease_ns: int) -> bool:
    """Law 8: an attempt that nobody reported is over only when its keeper must have killed it, by the
    database's time.
    """
    return age_ns > START_WINDOW_NS + lease_ns + CLOSE_MARGIN_NS
