"""The money of a build, template and verification forks, under the definition's own cap and the project's budget."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.account import Project, budget_exhausted
from app.domain.money import cost_micros, usd, usd_text
from app.domain.quote import Timing, budget, smallest_lease_ns
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


def price_build(definition: Definition, rate: Rate, project: Project) -> BuildPrice:
    """The budget of a build, divided.

    Raises BadRequest(cap_too_small), naming the smallest cap that works, Conflict(project_budget_exhausted).
    """
    smallest = _smallest_template(rate) + definition.repeat * _smallest_fork(definition, rate)
    if definition.cap_micros < smallest:
        raise BadRequest(
            "cap_too_small",
            f"building and verifying {definition.name!r} needs a spend_cap of at least {usd_text(smallest)} USD",
            smallest_cap_usd=usd(smallest),
        )
    if project.left_micros is not None and project.left_micros < smallest:
        raise budget_exhausted(project, smallest)
    worst = _worst(definition, rate)
    return divide(definition, rate, budget(definition.cap_micros, worst, project.left_micros)[0])


def divide(definition: Definition, rate: Rate, budget_micros: int) -> BuildPrice:
    """Divide a budget: first what each part needs at least, then the rest, half to the template."""
    micros = rate.micros_per_hour
    timing = _timing(definition)
    smallest_fork, smallest_template = _smallest_fork(definition, rate), _smallest_template(rate)
    spare = budget_micros - smallest_template - definition.repeat * smallest_fork
    worst_template = cost_micros(definition.build_ns, micros)
    worst_fork = timing.worst_micros(micros)
    template = min(worst_template, smallest_template + spare // 2)
    return BuildPrice(
        timing=timing,
        worst_micros=_worst(definition, rate),
        budget_micros=budget_micros,
        template_grant_micros=template,
        template_worst_micros=worst_template,
        fork_grant_micros=min(worst_fork, (budget_micros - template) // definition.repeat),
        fork_worst_micros=worst_fork,
        fork_smallest_micros=smallest_fork,
    )


def _worst(definition: Definition, rate: Rate) -> int:
    fork = _timing(definition).worst_micros(rate.micros_per_hour)
    template = cost_micros(definition.build_ns, rate.micros_per_hour)
    return template + definition.repeat * fork


def _smallest_template(rate: Rate) -> int:
    return cost_micros(TEMPLATE_ALLOWANCE_NS, rate.micros_per_hour)


def _smallest_fork(definition: Definition, rate: Rate) -> int:
    return cost_micros(smallest_lease_ns(_timing(definition)), rate.micros_per_hour)


def _timing(definition: Definition) -> Timing:
    return Timing(
        command_ns=definition.test.timeout_ns,
        grade_ns=0,
        test_ns=sum(hook.timeout_ns for hook in definition.on_fork),
        environment_retries=VERIFY_RETRIES,
        rerun_started=False,
    )
