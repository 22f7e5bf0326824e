"""A process of `test_store_projects.py`: it starts runs of one project for as long as the budget lets it."""

from __future__ import annotations

import json
import random
import sys

from app.domain.fork import EndReason
from app.errors import Conflict
from infra.fakes.clock import ManualClock
from infra.store import create_store
from tests import builders as a

TRIES = 25
BUDGET = 100_000


def spend(url: str, seed: int) -> dict[str, int]:
    """Start runs and end some of them, in an order of the seed's; how many were started, refused and ended."""
    store = create_store(url, now_ns=ManualClock().wall_ns)
    chance = random.Random(seed)
    live: list[str] = []
    told = {"started": 0, "project_budget_exhausted": 0, "ended": 0}
    for _ in range(TRIES):
        run, forks = a.step(1, BUDGET)
        try:
            store.runs.start(run, forks, None)
        except Conflict as refused:
            told[refused.code] += 1
        else:
            told["started"] += 1
            live.append(run.run_id)
        if live and chance.random() < 0.3:
            store.runs.ask_stop(live.pop(0), EndReason.CANCELLED)
            told["ended"] += 1
        assert store.projects.get(a.PROJECT).left_micros in range(6 * BUDGET)
    store.close()
    return told


if __name__ == "__main__":
    json.dump(spend(sys.argv[1], int(sys.argv[2])), sys.stdout)
