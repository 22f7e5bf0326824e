"""What a seed means: the lives of its forks' commands, how tight its cap is, and what is broken when. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from drills.forwarder import Outage

COUNT = 24
# A command that no seed can pay for to its end.
ENDLESS_S = 3600
# Commands that end by themselves do so within the smallest lease, where the machines come up in time.
LATEST_END_S = 45
# Faults begin while the first machines come up, and stop before the last leases of an ordinary seed end.
FIRST_FAULT_S, LAST_FAULT_S = 2.0, 75.0
OUTAGE_S = 10.0


class Target(StrEnum):
    """What is struck."""

    BILLING = "billing"
    WORKER = "worker"
    API = "api"
    REDIS = "redis"
    KEEPER = "keeper"
    DATABASE = "database"


PARTS = (Target.BILLING, Target.WORKER, Target.API, Target.REDIS)


@dataclass(frozen=True, slots=True)
class Fault:
    """One strike, `at_s` after the step was started."""

    at_s: float
    target: Target

    def __str__(self) -> str:
        return f"{self.target.value}@{self.at_s:.0f}"


@dataclass(frozen=True, slots=True)
class Life:
    """What the command of one fork does: ends with `exit_code` after `seconds`."""

    seconds: int
    exit_code: int

    @property
    def endless(self) -> bool:
        return self.seconds == ENDLESS_S


@dataclass(frozen=True, slots=True)
class Plan:
    """One seed. The cap is the smallest that the quote allows times `cap_share`."""

    seed: int
    cap_share: float
    lives: tuple[Life, ...]
    faults: tuple[Fault, ...]
    outage: Outage

    def __str__(self) -> str:
        endless = sum(life.endless for life in self.lives)
        struck = " ".join(map(str, self.faults))
        return (
            f"seed {self.seed}: {endless} of {len(self.lives)} commands endless, "
            f"cap {self.cap_share:.2f} of the smallest; {struck} ({self.outage.value})"
        )


def plan(seed: int) -> Plan:
    """The same plan for the same seed, always.

    Every seed strikes each part, two keepers and the database; two more strikes are drawn. The two kinds of outage take
    turns.
    """
    chance = random.Random(seed)
    lives = [_early(chance) for _ in range(chance.randint(6, 10))]
    lives += [Life(ENDLESS_S, 0)] * (COUNT - len(lives))
    chance.shuffle(lives)
    targets = [*PARTS, Target.KEEPER, Target.KEEPER, Target.DATABASE]
    targets += chance.choices((*PARTS, Target.KEEPER), k=2)
    faults = (Fault(chance.uniform(FIRST_FAULT_S, LAST_FAULT_S), target) for target in targets)
    return Plan(
        seed=seed,
        cap_share=chance.uniform(1.0, 1.1),
        lives=tuple(lives),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
        outage=(Outage.REFUSED, Outage.SILENT)[seed % 2],
    )


def _early(chance: random.Random) -> Life:
    return Life(chance.randint(1, LATEST_END_S), chance.choice((0, 0, 1, 7)))
