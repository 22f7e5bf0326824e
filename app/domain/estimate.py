"""What the hours of a deployment are estimated to have cost its account: arithmetic on the rate card, never a charge.

A commitment is owed by the hour, used or not, as a savings plan is; so the hour is the grain. Of one hour, over all
projects:

    capacity              = the commitment's vCPUs x the hour
    covered               = min(capacity, vCPUs x life, summed over all machines)
    committed             = the commitment's price of the hour
    used                  = committed x covered / capacity
    idle                  = committed - used
    on-demand equivalent  = life x the shape's on-demand price, summed over all machines
    overflow              = on-demand equivalent x (the share of the vCPU-time that is not covered)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise
from typing import Self

from app.domain.machine import Shape
from app.domain.money import NS_PER_HOUR
from app.domain.rates import Basis, Commitment, RateCard
from app.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Use:
    """How long machines of a shape lived in an hour. `micros_per_hour` is on demand; None if the card has no price."""

    vcpus: int
    lived_ns: int
    micros_per_hour: int | None


@dataclass(frozen=True, slots=True)
class Share:
    """A part of an hour's estimate: the used part of the commitment, the overflow, and all of it on demand.

    `unpriced_ns` is life of shapes that the card has no price for: it is in `used_micros` and in no other amount.
    """

    used_micros: int = 0
    overflow_micros: int = 0
    on_demand_micros: int = 0
    unpriced_ns: int = 0

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        parts = tuple(parts)
        return cls(*(sum(getattr(part, name) for part in parts) for name in _AMOUNTS))


_AMOUNTS = tuple(field.name for field in fields(Share))


@dataclass(frozen=True, slots=True)
class Hour:
    """The estimate of one hour of the whole deployment, with the share of each use. `committed = used + idle`."""

    committed_micros: int
    used_micros: int
    shares: tuple[Share, ...]


def hour(commitment: Commitment | None, begin_ns: int, passed_ns: int, uses: Sequence[Use]) -> Hour:
    """Estimate an hour of which `passed_ns` are over; one that is under way owes no more than that part of its price.

    The shares add up to the hour's amounts.
    """
    committed, capacity_ns = _owed(commitment, begin_ns, passed_ns)
    vcpu_ns = [use.vcpus * use.lived_ns for use in uses]
    covered_ns = min(sum(vcpu_ns), capacity_ns)
    used = committed * covered_ns // capacity_ns if capacity_ns else 0
    on_demand = [(use.micros_per_hour or 0) * use.lived_ns // NS_PER_HOUR for use in uses]
    beyond_ns = sum(vcpu_ns) - covered_ns
    overflow = sum(on_demand) * beyond_ns // sum(vcpu_ns) if beyond_ns else 0
    shares = map(
        Share,
        spread(used, vcpu_ns),
        spread(overflow, on_demand),
        on_demand,
        (use.lived_ns if use.micros_per_hour is None else 0 for use in uses),
    )
    return Hour(committed, used, tuple(shares))


def idle_micros_per_hour(commitment: Commitment | None, wall_ns: int, vcpus: int) -> int:
    """What of the commitment's price nobody uses, while machines with so many vCPUs run; 0 outside its time."""
    if commitment is None or not commitment.begins_ns <= wall_ns < commitment.ends_ns:
        return 0
    idle = max(0, commitment.vcpus - vcpus)
    return commitment.micros_per_hour * idle // commitment.vcpus if commitment.vcpus else 0


def divided(share: Share, weights: Sequence[int]) -> tuple[Share, ...]:
    """A share in parts by weight, which add up to it."""
    parts = (spread(getattr(share, name), weights) for name in _AMOUNTS)
    return tuple(map(Share, *parts))


def spread(amount: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Whole parts of an amount, as near to the weights as whole parts can be, which add up to it.

    A part is the difference of two rounded sums. Without any weight there is nothing to go by: the first has it all.
    """
    if not any(weights):
        return (amount, *[0] * (len(weights) - 1)) if weights else ()
    whole = sum(weights)
    marks = (amount * sofar // whole for sofar in accumulate(weights, initial=0))
    return tuple(after - before for before, after in pairwise(marks))


def on_demand_micros_per_hour(card: RateCard, shape: Shape) -> int | None:
    """None if the card has no price for a shape: one that an older card had."""
    try:
        return card.rate(shape, Basis.ON_DEMAND).micros_per_hour
    except BadRequest:
        return None


def _owed(commitment: Commitment | None, begin_ns: int, passed_ns: int) -> tuple[int, int]:
    """What an hour's commitment costs, and the vCPU-time that comes with it."""
    if commitment is None or not commitment.begins_ns <= begin_ns < commitment.ends_ns:
        return 0, 0
    passed_ns = min(max(passed_ns, 0), NS_PER_HOUR)
    return commitment.micros_per_hour * passed_ns // NS_PER_HOUR, commitment.vcpus * passed_ns
