"""One seed from start to end: a deployment, its callers, faults, the calm after them, and the judgement."""

from __future__ import annotations

import logging
import random
import secrets
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import structlog

from app.domain.snapshot import Definition
from app.flow import report
from drills.chaos.chances import ALL_FAULTS, NO_FAULTS, Chances
from drills.chaos.chronicle import Chronicle
from drills.chaos.cluster import PROJECT, SHAPE, Cluster
from drills.chaos.faults import Faults
from drills.chaos.judge import Broken, Evidence, Law, judge
from drills.chaos.plan import SNAPSHOT, RunPlan, draw, sim
from drills.chaos.trainer import Started, Trainer
from drills.rows import Account, account_of, unfinished
from infra.fakes.clock import ManualClock
from infra.store import Stores, create_store
from promigence.types import Report

IN_MEMORY = "sqlite://"
HOSTS, SLOTS = 3, 40
# Runs start one after another, about so many forks a second; what still runs a while after the last goes on in calm.
FORKS_A_SECOND, FAULTS_GO_ON_S = 2.5, 60.0
STEP_S = (0.3, 1.5)
LONGEST_S = 4 * 3600.0
LOOK_EVERY = 8
FORKS_A_RUN = (4, 24)


Draw = Callable[[random.Random, int], RunPlan]


@dataclass(slots=True)
class Result:
    """What came of one seed."""

    seed: int
    forks: int = 0
    runs: int = 0
    machines: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    commands: int = 0
    unaccounted_micros: int = 0
    broken: list[Broken] = field(default_factory=list)
    traces: dict[str, list[str]] = field(default_factory=dict)


def play(
    seed: int,
    forks: int,
    *,
    url: str = IN_MEMORY,
    chances: Chances = ALL_FAULTS,
    drawn: Draw = draw,
) -> Result:
    """An episode of about so many forks. The same seed is the same episode."""
    chance, clock = random.Random(seed), ManualClock()
    stores = create_store(url, key_secret=b"k" * 32, now_ns=clock.wall_ns)
    folder = tempfile.TemporaryDirectory(prefix="promigence-chaos-")
    with folder, _silent(), _drawn_by(random.Random(f"ids of {seed}")):
        try:
            stores.migrate()
            cluster = Cluster(stores, clock, Path(folder.name), chance, HOSTS, SLOTS)
            try:
                plans = _plans(chance, forks, drawn)
                return _play(cluster, chance, seed, plans, chances)
            finally:
                cluster.close()
        finally:
            stores.close()


@contextmanager
def _silent() -> Iterator[None]:
    """What workers log of leaks and of each other is no news here."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


@contextmanager
def _drawn_by(chance: random.Random) -> Iterator[None]:
    """Ids and samples are drawn by the seed too: what is ordered by them is ordered in the same way again."""

    def token_bytes(count: int = 32) -> bytes:
        return chance.randbytes(count)

    def token_hex(count: int = 32) -> str:
        return chance.randbytes(count).hex()

    def uuid4() -> uuid.UUID:
        return uuid.UUID(bytes=chance.randbytes(16), version=4)

    with (
        patch.object(secrets, "token_bytes", token_bytes),
        patch.object(secrets, "token_hex", token_hex),
        patch.object(uuid, "uuid4", uuid4),
    ):
        yield


def _play(
    cluster: Cluster,
    chance: random.Random,
    seed: int,
    plans: list[tuple[float, RunPlan]],
    chances: Chances,
) -> Result:
    cluster.build(Definition(SNAPSHOT, "debian-12", SHAPE, test=sim("1s exit 0", 30)))
    trainer = Trainer(cluster, chance, plans)
    cluster.chances = chances
    _with_faults(cluster, trainer, Faults(cluster, chance), chance)
    late = _calm(cluster, trainer)
    return _judged(cluster, trainer, seed, late)


def _plans(chance: random.Random, forks: int, drawn: Draw) -> list[tuple[float, RunPlan]]:
    """Runs with the seconds from the beginning at which they start."""
    plans, last_s = [], forks / FORKS_A_SECOND
    while forks > 0:
        plan = drawn(chance, min(forks, chance.randint(*FORKS_A_RUN)))
        plans.append((chance.uniform(0, last_s), plan))
        forks -= plan.spec.count
    return plans


def _with_faults(cluster: Cluster, trainer: Trainer, faults: Faults, chance: random.Random) -> None:
    until_s, looks = trainer.last_s + FAULTS_GO_ON_S, 0
    while cluster.now_s < until_s:
        seconds = chance.uniform(*STEP_S)
        trainer.act()
        faults.strike(seconds)
        cluster.tick(seconds)
        looks += 1
        if looks % LOOK_EVERY == 0 and trainer.has_started_all and not any(trainer.unfinished()):
            return


def _calm(cluster: Cluster, trainer: Trainer) -> list[Started]:
    """Nothing befalls any more: everything ends, and is cleared away. Returns the runs that do not end."""
    cluster.chances = NO_FAULTS
    for world in cluster.worlds.values():
        world.clear()
    until_s, step_s = cluster.now_s + LONGEST_S, 1.0
    while any(trainer.unfinished()) and cluster.now_s < until_s:
        for _ in range(LOOK_EVERY):
            trainer.act()
            cluster.tick(step_s)
        step_s = min(step_s * 1.2, 10.0)
    for _ in range(15):
        cluster.tick(5.0)
    return list(trainer.unfinished())


def _judged(cluster: Cluster, trainer: Trainer, seed: int, late: list[Started]) -> Result:
    result = Result(seed, runs=len(trainer.started), met=cluster.chronicle.met)
    for run in trainer.started:
        evidence = _evidence(cluster, run)
        result.forks += len(run.forks)
        result.outcomes.update(fork["outcome"] for fork in evidence.report["forks"])
        failures = cast(list[dict[str, Any]], evidence.report["environment_failures"])
        result.unaccounted_micros += unaccounted(evidence.account)
        result.kinds.update(each["kind"] for each in failures)
        result.broken += judge(evidence) if run not in late else _not_ended(evidence)
    result.machines = len(cluster.chronicle.fork_of)
    result.commands = sum(not exec_id.startswith("test_") for exec_id in cluster.starts)
    result.broken += _of_all(cluster)
    for broken in result.broken:
        result.traces[broken.fork_id] = list(cluster.chronicle.told(broken.fork_id))
    return result


def unaccounted(account: Account) -> int:
    """Micro-dollars of a run at its end that are nowhere, or where nobody can have them any more."""
    parts = account.pool_micros + account.charged_micros
    charged = sum(attempt.charged_micros for attempt in account.attempts)
    return abs(account.budget_micros - parts) + abs(account.charged_micros - charged)


def _not_ended(evidence: Evidence) -> Iterator[Broken]:
    for fork in evidence.report["forks"]:
        if fork["outcome"] == "pending":
            yield Broken(Law.UNFINISHED, fork["fork_id"], "has not ended")


def _of_all(cluster: Cluster) -> Iterator[Broken]:
    """What is true of the deployment as a whole, after everything."""
    for line in cluster.chronicle.surprises:
        yield Broken(Law.SURPRISE, "", line)
    for line in unfinished(StoreRows(cluster.stores)):
        yield Broken(Law.UNFINISHED, "", line)
    for host_id, world in cluster.worlds.items():
        for name in world.boxes:
            fork_id = cluster.chronicle.fork_of.get(name, "")
            yield Broken(Law.UNFINISHED, fork_id, f"machine {name} is left on {host_id}")
    yield from _twice(cluster.chronicle, cluster.starts)


def _twice(chronicle: Chronicle, starts: Counter[str]) -> Iterator[Broken]:
    for exec_id, count in starts.items():
        if count > 1:
            fork_id = chronicle.fork_of.get(exec_id.partition("_")[2], "")
            yield Broken(Law.TWICE, fork_id, f"{exec_id} was started {count} times")


def _evidence(cluster: Cluster, run: Started) -> Evidence:
    ports = cluster.ports
    page = cast(Report, report.report(ports, PROJECT, run.run_id, forks=True))
    return Evidence(
        started=run,
        report=page,
        account=account_of(StoreRows(cluster.stores), run.run_id),
        events=StoreRows(cluster.stores).rows(_EVENTS, run.run_id),
        held_ends={exec_id: ports.execs.find(exec_id) for exec_id in run.sent},
        chronicle=cluster.chronicle,
    )


_EVENTS = "SELECT number, kind, fork_id, reason FROM event WHERE run_id = %s ORDER BY number"


@dataclass(frozen=True, slots=True)
class StoreRows:
    """The rows of a store, by plain SELECTs."""

    stores: Stores

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """What it finds."""
        with self.stores.database.read() as at:
            if at.dialect.name == "sqlite":
                statement = statement.replace("%s", "?")
            found = at.exec_driver_sql(statement, tuple(values))
            return [dict(row) for row in found.mappings()]
