"""Are quotes honest: random steps run to their end on fakes, and what each cost held against what its quote said."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from app.domain.fork import Outcome
from app.domain.money import MICROS_PER_USD, cost_micros, usd
from app.domain.quote import Quote
from app.domain.run import Run, RunSpec
from app.errors import BadRequest
from app.flow import quote, start
from bench.figures import RATIO, Claim, Figure, Result
from bench.trouble import HOSTS, SLOTS, SNAPSHOTS, Trouble, endless_spec, random_spec
from tests.flow.stage import PROJECT, Stage, definition, sim

STEPS, SEED = 200, 3
# Of all steps, those that nothing befalls and that end for want of money alone.
ENDLESS = 0.25


@dataclass(frozen=True, slots=True)
class Kept:
    """A step that ended. `by_funded`: what each fork cost, by what was funded for it; empty if any ended early."""

    actual_micros: int
    quoted_micros: int
    cap_micros: int
    by_funded: tuple[float, ...]
    outcomes: frozenset[str]

    @property
    def by_quoted(self) -> float:
        return self.actual_micros / self.quoted_micros


def measure() -> Result:
    """All of the steps, and the claims that are made of every quote."""
    return judged(kept_quotes(STEPS, SEED), SEED)


def judged(kept: tuple[Kept, ...], seed: int) -> Result:
    """The figures of some steps, of which at least one ended for want of money alone."""
    by_quoted = tuple(each.by_quoted for each in kept)
    by_cap = tuple(each.quoted_micros / each.cap_micros for each in kept)
    by_funded = tuple(ratio for each in kept for ratio in each.by_funded)
    seen = frozenset[str]().union(*(each.outcomes for each in kept))
    return Result(
        about={"steps": len(kept), "seed": seed, "outcomes": ", ".join(sorted(seen))},
        figures=(
            Figure("step: actual by quoted max", by_quoted, RATIO),
            Figure("fork: actual by funded, none ended early", by_funded, RATIO),
        ),
        claims=(
            Claim("step: largest actual by quoted max", max(by_quoted), at_most=1),
            Claim("step: largest quoted max by cap", max(by_cap), at_most=1),
            Claim("fork: largest actual by funded", max(by_funded), at_most=1),
            # The other side of a promise: whoever ends for want of money had what was funded.
            Claim("fork: smallest actual by funded", min(by_funded), at_least=0.99),
        ),
    )


def kept_quotes(steps: int, seed: int) -> tuple[Kept, ...]:
    """Quote, start and run so many random steps, one after another, in one deployment."""
    chance = Random(seed)  # noqa: S311 - no secret is made of it
    with tempfile.TemporaryDirectory(prefix="promigence-bench-") as folder:
        stage = Stage(Path(folder), hosts=HOSTS, slots=SLOTS)
        try:
            _build(stage)
            trouble = Trouble(stage, chance, Path(folder))
            return tuple(_step(trouble) for _ in range(steps))
        finally:
            stage.stores.close()


def _build(stage: Stage) -> None:
    tests = dict(zip(SNAPSHOTS, (sim("1s"), sim("9s", timeout_s=20)), strict=True))
    for name, test in tests.items():
        page = stage.build(definition(name=name, test=test))
        assert page["state"] == "verified", page


def _step(trouble: Trouble) -> Kept:
    chance, stage = trouble.chance, trouble.stage
    endless = chance.random() < ENDLESS
    asked = endless_spec(chance) if endless else random_spec(chance)
    spec = _with_cap(stage, asked, chance, binding=endless)
    quoted = quote.quote(stage.ports, PROJECT, spec)
    answer = start.start(stage.ports, PROJECT, spec, quoted.quote_id, None)
    run_id = str(answer["run_id"])
    trouble.run_until_final(run_id, often=0 if endless else chance.choice((0, 0.05, 0.2, 0.5)))
    return _kept(stage, run_id, quoted)


def _with_cap(stage: Stage, asked: RunSpec, chance: Random, *, binding: bool) -> RunSpec:
    """A cap from the smallest that is taken to one that binds nobody."""
    smallest = _smallest_micros(stage, asked)
    worst = quote.quote(stage.ports, PROJECT, replace(asked, cap_micros=10**9)).worst_micros
    between = smallest + int((worst - smallest) * chance.random())
    caps = (smallest, between) if binding else (smallest, between, between, worst, 2 * worst)
    return replace(asked, cap_micros=chance.choice(caps))


def _smallest_micros(stage: Stage, asked: RunSpec) -> int:
    """As the refusal of a cap of one micro-dollar names it."""
    try:
        quote.quote(stage.ports, PROJECT, replace(asked, cap_micros=1))
    except BadRequest as refused:
        return round(float(str(refused.details["smallest_cap_usd"])) * MICROS_PER_USD)
    raise AssertionError("a cap of one micro-dollar was taken")


def _kept(stage: Stage, run_id: str, quoted: Quote) -> Kept:
    run, page = stage.ports.runs.get(PROJECT, run_id), stage.report(run_id)
    assert page["cost"]["total_usd"] == usd(run.charged_micros), (run, page["cost"])
    forks = page["forks"]
    return Kept(
        actual_micros=run.charged_micros,
        quoted_micros=quoted.budget_micros,
        cap_micros=run.spec.cap_micros,
        by_funded=_by_funded(quoted, forks) if _none_ended_early(run, forks) else (),
        outcomes=frozenset(str(fork["outcome"]) for fork in forks),
    )


def _none_ended_early(run: Run, forks: list[dict[str, Any]]) -> bool:
    """Whether every fork, all having the same limits, lived in one machine until the money was gone."""
    alike = len({group.snapshot for group in run.spec.groups}) == 1
    return alike and all(
        fork["outcome"] == Outcome.CAPPED and fork["attempts"] == 1 for fork in forks
    )


def _by_funded(quoted: Quote, forks: list[dict[str, Any]]) -> tuple[float, ...]:
    funded = cost_micros(quoted.funded_ns, quoted.rate.micros_per_hour)
    return tuple(round(float(fork["cost_usd"]) * MICROS_PER_USD) / funded for fork in forks)
