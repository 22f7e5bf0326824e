"""What filling environment failures with zeros does to a policy's update: one graded step on simulated machines.

    make up MACHINES=fake && set -a && . .promigence/env && .venv/bin/python -m bench.grpo

Eight prompts, sixteen samples each. A sample's reward is the share of eight tests that it passes; its environment
breaks by its prompt's own chance, whatever the sample was worth: environments break where tasks are heavy. All is drawn
from one seed, so that the same step comes out on every machine. `docs/rewards.md` has the tables that this prints.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from statistics import fmean, pstdev

from promigence import Promigence, rewards
from promigence.types import Definition, Group, Report, Rewards, StartTerms

SEED = 11
SAMPLES = 16
TESTS = 8
SUITE: Definition = {"name": "grpo", "image": "debian-12", "test": {"sh": "sim: exit 0"}}
TERMS: StartTerms = {
    "spend_cap": 5.0,
    "verify_each": False,
    "exec": {"sh": "sim: $ROLLOUT", "timeout_seconds": 30},
    "grade": {"sh": "sim: $GRADE", "timeout_seconds": 30, "result_required": True},
}
# How likely a test passes, and how often the environment breaks.
PROMPTS = (
    ("easy, light", 0.90, 0.05),
    ("easy, heavy", 0.90, 0.40),
    ("middling, light", 0.50, 0.05),
    ("middling, heavy", 0.50, 0.40),
    ("hard, light", 0.10, 0.05),
    ("hard, heavy", 0.10, 0.40),
    ("solved", 1.00, 0.25),
    ("broken", 0.50, 0.97),
)
# Each ends `env_failed`: a machine that dies, a reported fault, a grader that crashes, hangs or writes NaN.
BREAKS = (
    ("0.1s crash", "exit 0"),
    ("0.1s exit 1", '0.1s result \'{"valid": false, "reason": "no judge"}\''),
    ("0.1s exit 1", "0.1s exit 139"),
    ("0.1s exit 1", "exit 1"),
    ("0.1s exit 1", "0.1s result '{\"reward\": NaN}'"),
)


def step(seed: int = SEED) -> list[Group]:
    """The step: a group of one for each sample, since each does something of its own; their keys make the groups."""
    chance = random.Random(seed)  # noqa: S311 - a step is drawn, no secret
    return [
        _sample(chance, prompt, worth, breaks)
        for prompt, worth, breaks in PROMPTS
        for _ in range(SAMPLES)
    ]


def advantages(step: Rewards) -> list[float | None]:
    """GRPO's advantage of each fork over its group's valid ones; None where there is nothing to learn from."""
    found: list[float | None] = [None] * len(step["rewards"])
    for group in step["groups"]:
        valid = {i: r for i in group["indices"] if (r := step["rewards"][i]) is not None}
        if len(valid) < 2:
            continue  # nothing to compare with: no baseline, no gradient
        mean, spread = fmean(valid.values()), pstdev(valid.values())
        for i, reward in valid.items():
            found[i] = (reward - mean) / (spread + 1e-6)
    return found


def zero_filled(step: Rewards) -> Rewards:
    """The mistake: what broke is a 0 like any other."""
    filled = [0.0 if reward is None else reward for reward in step["rewards"]]
    return {**step, "rewards": [*filled], "mask": [True] * len(filled)}


@dataclass(frozen=True, slots=True)
class Line:
    """One prompt, right and zero-filled: mean rewards, and how many valid samples' advantages change their sign."""

    prompt: str
    attempted: int
    valid: int
    mean: float | None
    filled_mean: float
    signs_flipped: int


def compared(step: Rewards) -> list[Line]:
    """A line for each group."""
    right, wrong = advantages(step), advantages(zero_filled(step))
    return [
        Line(
            prompt=group["key"] or "",
            attempted=group["attempted"],
            valid=group["valid"],
            mean=_mean([step["rewards"][i] for i in group["indices"]]),
            filled_mean=fmean(zero_filled(step)["rewards"][i] or 0.0 for i in group["indices"]),
            signs_flipped=sum(_flips(right[i], wrong[i]) for i in group["indices"]),
        )
        for group in step["groups"]
    ]


def table(lines: list[Line]) -> str:
    """The comparison as Markdown."""
    head = "| prompt | attempted | valid | mean of valid | mean with zeros | signs flipped |\n" + (
        "|---|---|---|---|---|---|"
    )
    rows = (
        f"| {line.prompt} | {line.attempted} | {line.valid} | "
        f"{'' if line.mean is None else f'{line.mean:.3f}'} | {line.filled_mean:.3f} | "
        f"{line.signs_flipped} |"
        for line in lines
    )
    return "\n".join((head, *rows))


def totals(step: Rewards) -> str:
    """The step as a whole, as Markdown: how much of the zero-filled update comes from samples that never were."""
    right, wrong = advantages(step), advantages(zero_filled(step))
    broken = [place for place, ok in enumerate(step["mask"]) if not ok]
    pull = sum(abs(each) for each in wrong if each is not None)
    of_broken = sum(abs(wrong[place] or 0.0) for place in broken)
    flipped = sum(_flips(one, other) for one, other in zip(right, wrong, strict=True))
    used = sum(each is not None for each in right)
    said = (
        (
            "attempted / valid / used in the update",
            f"{step['attempted']} / {step['valid']} / {used}",
        ),
        ("mean reward: valid only, with zeros", f"{_of(step):.3f}, {_of(zero_filled(step)):.3f}"),
        ("share of the zero-filled update that broken samples make", f"{of_broken / pull:.0%}"),
        ("broken samples pushed down; pushed up", _pushed(wrong, broken)),
        ("valid samples whose advantage changes its sign", f"{flipped} of {used}"),
        (
            "valid samples pushed that should not be (all alike, alone, or at the mean)",
            str(_moved(step["mask"], right, wrong)),
        ),
    )
    return "\n".join(
        ("| the step | |", "|---|---|", *(f"| {name} | {seen} |" for name, seen in said))
    )


def run(client: Promigence) -> Report:
    """Build the suite, run the step, wait for its end."""
    client.snapshots.build(SUITE)
    started = client.runs.start(step(), **TERMS)
    return client.runs.wait(started["run_id"], timeout=600)


def main() -> int:
    """Print what `docs/rewards.md` shows."""
    with Promigence() as client:
        report = run(client)
    seen = rewards(report)
    kinds = sorted({each["kind"] for each in report["environment_failures"]})
    print(
        table(compared(seen)), totals(seen), f"environment failures: {', '.join(kinds)}", sep="\n\n"
    )
    return 0


def _sample(chance: random.Random, prompt: str, worth: float, breaks: float) -> Group:
    reward = sum(chance.random() < worth for _ in range(TESTS)) / TESTS
    grade = f"0.1s result '{{\"reward\": {reward}}}' exit {int(reward < 1)}"
    rollout = "0.1s exit 0"
    if chance.random() < breaks:
        rollout, grade = chance.choice(BREAKS)
    env = {"ROLLOUT": rollout, "GRADE": grade}
    return {"snapshot": SUITE["name"], "count": 1, "key": prompt, "env": env}


def _flips(right: float | None, wrong: float | None) -> bool:
    """Whether a sample is pushed the other way; of a sample that has no advantage there is no way."""
    return right is not None and wrong is not None and right * wrong < 0


def _moved(mask: list[bool], right: list[float | None], wrong: list[float | None]) -> int:
    """Valid samples that zeros push although their group says nothing: all alike, or too few to compare."""
    seen = zip(mask, right, wrong, strict=True)
    return sum(ok and not one and bool(other) for ok, one, other in seen)


def _mean(values: list[float | None]) -> float | None:
    valid = [value for value in values if value is not None]
    return fmean(valid) if valid else None


def _of(step: Rewards) -> float:
    return _mean(step["rewards"]) or 0.0


def _pushed(wrong: list[float | None], broken: list[int]) -> str:
    down = sum((wrong[place] or 0.0) < 0 for place in broken)
    up = sum((wrong[place] or 0.0) > 0 for place in broken)
    return f"{down} of {len(broken)}; {up}"


if __name__ == "__main__":
    sys.exit(main())
