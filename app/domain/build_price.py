"""The money of a build: its template and its verification forks, under the definition's own cap."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.money import cost_micros, usd
from app.domain.quote import Timing, smallest_lease_ns
from app.domain.rates import Rate
from app.domain.snapshot import TEMPLATE_ALLOWANCE_NS, Definition
from app.errors import BadRequest

VERIFY_RETRIES = 1


@dataclass(frozen=True, slots=True)
class BuildPrice:
    """Grants are equal for all verification forks; budget >= template grant + repeat x fork grant."""

    timing: Timing
    worst_micros: int
    budget_micros: int
    template_grant_micros: int
    template_worst_micros: int
    fork_grant_micros: int
    fork_worst_micros: int
    fork_smallest_micros: int


def price_build(definition: Definition, rate: Rate) -> BuildPrice:
    """Divide the cap: first what each part needs at least, then the rest, half to the template.

    Raises BadRequest(cap_too_small), naming the smallest cap that works.
    """
    micros = rate.micros_per_hour
    timing = _timing(definition)
    smallest_fork = cost_micros(smallest_lease_ns(timing), micros)
    smallest_template = cost_micros(TEMPLATE_ALLOWANCE_NS, micros)
    smallest = smallest_template + definition.repeat * smallest_fork
    if definition.cap_micros < smallest:
        raise BadRequest(
            "cap_too_small",
            f"building and verifying {definition.name!r} needs a spend_cap of at least {usd(smallest)} USD",
            smallest_cap_usd=usd(smallest),
        )
    worst_template = cost_micros(definition.build_ns, micros)
    worst_fork = timing.worst_micros(micros)
    worst = worst_template + definition.repeat * worst_fork
    budget = min(definition.cap_micros, worst)
    spare = budget - smallest
    template = min(worst_template, smallest_template + spare // 2)
    fork = min(worst_fork, (budget - template) // definition.repeat)
    return BuildPrice(
        timing, worst, budget, template, worst_template, fork, worst_fork, smallest_fork
    )


def _timing(definition: Definition) -> Timing:
    return Timing(
        command_ns=definition.test.timeout_ns,
        grade_ns=0,
        test_ns=sum(hook.timeout_ns for hook in definition.on_fork),
        environment_retries=VERIFY_RETRIES,
        rerun_started=False,
    )
