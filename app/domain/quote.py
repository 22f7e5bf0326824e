"""Count x time x rate against the cap: the most that a step can cost, said before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.instant import instant
from app.domain.machine import Accelerator, Shape
from app.domain.money import NS_PER_SECOND, affordable_ns, cost_micros, usd
from app.domain.rates import Rate
from app.errors import BadRequest

# Restore, barrier and contract, with room for a slow host; an own test's limit comes on top.
RESTORE_ALLOWANCE_NS = 30 * NS_PER_SECOND
MINIMUM_LEASE_NS = 30 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Timing:
    """The limits that bound one fork of a step, in ns. `command_ns` is the exec's limit or the hold."""

    command_ns: int
    grade_ns: int
    test_ns: int
    environment_retries: int
    rerun_started: bool

    @property
    def allowance_ns(self) -> int:
        """From restore to ready: what verification may take."""
        return RESTORE_ALLOWANCE_NS + self.test_ns

    @property
    def attempt_ns(self) -> int:
        """The worst case of one attempt."""
        return self.allowance_ns + self.command_ns + self.grade_ns

    def worst_micros(self, micros_per_hour: int) -> int:
        """The worst case of one fork: its attempt, and one more allowance (or attempt) per replacement."""
        again_ns = self.attempt_ns if self.rerun_started else self.allowance_ns
        return cost_micros(
            self.attempt_ns, micros_per_hour
        ) + self.environment_retries * cost_micros(again_ns, micros_per_hour)


@dataclass(frozen=True, slots=True)
class Priced:
    """One group of a step with what bounds it."""

    snapshot: str
    count: int
    shape: Shape
    timing: Timing


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How much of the step can run at once: hosts' slots for it, and those free now."""

    requested: int
    slots: int
    free_now: int


@dataclass(frozen=True, slots=True)
class Quote:
    """What a step can cost at most. `funded_ns` is the life of each fork if none ends early."""

    quote_id: str
    cap_micros: int
    worst_micros: int
    rate: Rate
    funded_ns: int
    concurrency: Concurrency
    accelerator: Accelerator
    expires_ns: int

    @property
    def budget_micros(self) -> int:
        return min(self.cap_micros, self.worst_micros)

    def as_dict(self) -> dict[str, object]:
        """The JSON shape of the contract."""
        return {
            "quote_id": self.quote_id,
            "max_cost_usd": usd(self.budget_micros),
            "worst_case_usd": usd(self.worst_micros),
            "spend_cap_usd": usd(self.cap_micros),
            "funded_seconds_per_fork": round(self.funded_ns / NS_PER_SECOND, 3),
            "rate": {
                "usd_per_fork_hour": usd(self.rate.micros_per_hour),
                "basis": self.rate.basis.value,
                "card_version": self.rate.card_version,
            },
            "concurrency": {
                "requested": self.concurrency.requested,
                "slots": self.concurrency.slots,
                "free_now": self.concurrency.free_now,
            },
            "accelerator": self.accelerator.value,
            "expires_at": instant(self.expires_ns),
        }


def price(
    quote_id: str,
    groups: tuple[Priced, ...],
    cap_micros: int,
    rate: Rate,
    concurrency: Concurrency,
    accelerator: Accelerator,
    expires_ns: int,
) -> Quote:
    """Price a step at one rate. Raises BadRequest(cap_too_small), naming the smallest cap that works."""
    worst = sum(group.count * group.timing.worst_micros(rate.micros_per_hour) for group in groups)
    count = sum(group.count for group in groups)
    smallest = smallest_cap_micros(groups, rate)
    if cap_micros < smallest:
        raise BadRequest(
            "cap_too_small",
            f"a cap of {usd(cap_micros)} USD cannot fund verification and {MINIMUM_LEASE_NS // NS_PER_SECOND} s "
            f"of work for each of {count} forks; the smallest cap that works is {usd(smallest)} USD",
            smallest_cap_usd=usd(smallest),
        )
    share = min(cap_micros, worst) // count
    longest = max(group.timing.attempt_ns for group in groups)
    funded = min(affordable_ns(share, rate.micros_per_hour), longest)
    return Quote(
        quote_id=quote_id,
        cap_micros=cap_micros,
        worst_micros=worst,
        rate=rate,
        funded_ns=funded,
        concurrency=concurrency,
        accelerator=accelerator,
        expires_ns=expires_ns,
    )


def smallest_cap_micros(groups: tuple[Priced, ...], rate: Rate) -> int:
    """The least budget whose equal shares fund, for every fork, verification and the smallest useful time."""
    needs = (cost_micros(smallest_lease_ns(group.timing), rate.micros_per_hour) for group in groups)
    return max(needs) * sum(group.count for group in groups)


def smallest_lease_ns(timing: Timing) -> int:
    """What a machine must be funded for before it starts; a shorter command needs no more than its limit."""
    return min(timing.allowance_ns + MINIMUM_LEASE_NS, timing.attempt_ns)
