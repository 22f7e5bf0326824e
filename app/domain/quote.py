"""Count x time x rate against cap and project's budget: the most that a step can cost, said before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.domain.account import Project, budget_exhausted
from app.domain.instant import instant
from app.domain.machine import Accelerator, Shape
from app.domain.money import NS_PER_SECOND, affordable_ns, cost_micros, usd, usd_text
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


class Binding(StrEnum):
    """What makes a step's budget no larger than it is."""

    WORST_CASE = "worst_case"
    SPEND_CAP = "spend_cap"
    PROJECT_BUDGET = "project_budget"


class Bound(StrEnum):
    """What lets no more forks of a step run at once."""

    REQUEST = "request"
    HOSTS = "hosts"
    PROJECT = "project"


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How much of the step can run at once: slots for it, of the hosts and within the project's limit, and those
    free now.
    """

    requested: int
    slots: int
    free_now: int
    binding: Bound = Bound.HOSTS


@dataclass(frozen=True, slots=True)
class Quote:
    """What a step can cost at most. `funded_ns` is the life of each fork if none ends early.

    `project` is as it stood when the quote was made.
    """

    quote_id: str
    cap_micros: int
    worst_micros: int
    rate: Rate
    funded_ns: int
    concurrency: Concurrency
    accelerator: Accelerator
    expires_ns: int
    project: Project | None = None

    @property
    def budget_micros(self) -> int:
        return budget(self.cap_micros, self.worst_micros, self._left_micros)[0]

    @property
    def binding(self) -> Binding:
        return budget(self.cap_micros, self.worst_micros, self._left_micros)[1]

    @property
    def _left_micros(self) -> int | None:
        return None if self.project is None else self.project.left_micros

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
                "binding": self.concurrency.binding.value,
            },
            "limits": self._limits(),
            "accelerator": self.accelerator.value,
            "expires_at": instant(self.expires_ns),
        }

    def _limits(self) -> dict[str, object]:
        left, project = self._left_micros, self.project
        return {
            "binding": self.binding.value,
            "project_left_usd": None if left is None else usd(left),
            "project_max_forks": project.max_forks if project else None,
            "project_live_forks": project.live_forks if project else 0,
        }


def price(
    quote_id: str,
    groups: tuple[Priced, ...],
    cap_micros: int,
    rate: Rate,
    concurrency: Concurrency,
    accelerator: Accelerator,
    expires_ns: int,
    project: Project,
) -> Quote:
    """Price a step at one rate.

    Raises BadRequest(cap_too_small), naming the smallest cap that works, Conflict(project_budget_exhausted).
    """
    worst = sum(group.count * group.timing.worst_micros(rate.micros_per_hour) for group in groups)
    count = sum(group.count for group in groups)
    smallest = smallest_cap_micros(groups, rate)
    if cap_micros < smallest:
        raise BadRequest(
            "cap_too_small",
            f"a cap of {usd_text(cap_micros)} USD cannot fund verification and {MINIMUM_LEASE_NS // NS_PER_SECOND} s "
            f"of work for each of {count} forks; the smallest cap that works is {usd_text(smallest)} USD",
            smallest_cap_usd=usd(smallest),
        )
    if project.left_micros is not None and project.left_micros < smallest:
        raise budget_exhausted(project, smallest)
    share = budget(cap_micros, worst, project.left_micros)[0] // count
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
        project=project,
    )


def budget(cap_micros: int, worst_micros: int, left_micros: int | None) -> tuple[int, Binding]:
    """What a step may spend, and which limit says so."""
    if left_micros is not None and left_micros < min(cap_micros, worst_micros):
        return left_micros, Binding.PROJECT_BUDGET
    if cap_micros < worst_micros:
        return cap_micros, Binding.SPEND_CAP
    return worst_micros, Binding.WORST_CASE


def concurrency(requested: int, slots: int, free: int, project: Project) -> Concurrency:
    """Hosts' slots for a step, and those free, as far as the project's limit lets it use them."""
    if project.max_forks is not None and project.free_forks is not None:
        limited = (min(slots, project.max_forks), min(free, project.free_forks))
    else:
        limited = (slots, free)
    if requested <= limited[0]:
        return Concurrency(requested, *limited, Bound.REQUEST)
    return Concurrency(requested, *limited, Bound.PROJECT if limited[0] < slots else Bound.HOSTS)


def smallest_cap_micros(groups: tuple[Priced, ...], rate: Rate) -> int:
    """The least budget whose equal shares fund, for every fork, verification and the smallest useful time.

    Never above the step's worst case, which funds all that can happen: of forks that differ, those whose worst case is
    below an equal share leave the rest of it to the others.
    """
    micros = rate.micros_per_hour
    neediest = max(cost_micros(smallest_lease_ns(group.timing), micros) for group in groups)
    worst = sum(group.count * group.timing.worst_micros(micros) for group in groups)
    return min(neediest * sum(group.count for group in groups), worst)


def smallest_lease_ns(timing: Timing) -> int:
    """What a machine must be funded for before it starts; a shorter command needs no more than its limit."""
    return min(timing.allowance_ns + MINIMUM_LEASE_NS, timing.attempt_ns)
