"""The fleet under load that comes and goes: bounds kept, nobody with forks ended, nothing moved to and fro."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from app.domain.fleet import Bounds, Lifecycle
from app.domain.run import RunSpec
from app.domain.scaling import IDLE_NS, Plan
from app.errors import Unavailable
from infra.fakes.fleet import FakeFleet
from infra.store.tables import forks, is_live
from tests.flow.stage import Stage, sim, spec
from workers.fleet import Scaler

SLOTS = 4
PERIOD_S = 10.0


def step(seconds: int, count: int, **more: Any) -> RunSpec:
    """A run of commands that take so long, each."""
    return spec(count=count, exec=sim(f"{seconds}s exit 0", timeout_s=3600), **more)


class Watched(FakeFleet):
    """A group that looks, whenever it is told to end an instance, whether anything has its place there."""

    stage: Stage

    def retire(self, instance_id: str) -> None:
        with self.stage.stores.database.read() as at:
            placed = at.execute(
                select(forks.c.fork_id).where(forks.c.host_id == instance_id, is_live)
            ).all()
        assert not placed, f"{instance_id} was ended with forks on it"
        super().retire(instance_id)


class Deployment:
    """A control plane whose hosts are the instances of a group: they come and go with them."""

    def __init__(self, stage: Stage, folder: Path, bounds: Bounds) -> None:
        self.stage, self.folder, self.bounds = stage, folder, bounds
        self.fleet = Watched(stage.clock, least=0, most=20)
        self.fleet.stage = stage
        self.plans: list[Plan] = []
        self.asked: list[int] = []
        self.scaler = Scaler(stage.ports, self.fleet, bounds, self.plans.append)
        # What built the suite is no instance of the group.
        self._end("host0")

    def run_for(self, seconds: float, step_s: float = PERIOD_S) -> None:
        for _ in range(int(seconds / step_s)):
            self.stage.clock.advance(step_s)
            self.turn()

    def turn(self) -> None:
        """The instances become what they become, the deployment ticks, and the billing worker looks."""
        self._follow()
        self.stage.tick()
        try:
            self.scaler.turn()
        except Unavailable:
            assert self.fleet.away or self.fleet.deaf_to
        if not self.asked or self.asked[-1] != self.fleet.desired:
            self.asked.append(self.fleet.desired)
        assert self.bounds.least <= max(self.fleet.desired, self.bounds.least) <= self.bounds.most

    def run_until_final(self, run_id: str) -> dict[str, int]:
        for _ in range(2000):
            page = self.stage.report(run_id)
            if page["final"]:
                totals: dict[str, int] = page["totals"]
                return totals
            self.run_for(PERIOD_S)
        raise AssertionError(f"{run_id} did not end: {page}")

    def _follow(self) -> None:
        away, self.fleet.away = self.fleet.away, False
        deaf, self.fleet.deaf_to = self.fleet.deaf_to, ""
        there = {each.instance_id: each for each in self.fleet.state().instances}
        self.fleet.away, self.fleet.deaf_to = away, deaf
        for name, each in there.items():
            if each.lifecycle is Lifecycle.IN_SERVICE and name not in self.stage.hosts:
                self.stage.add_host(name, self.folder, SLOTS)
        for name in [each for each in self.stage.hosts if each not in there]:
            self._end(name)

    def _end(self, name: str) -> None:
        """Its machines go with it, and nobody is left there to say so."""
        del self.stage.hosts[name], self.stage.worlds[name]


@pytest.fixture
def deployment(suite: Stage, tmp_path: Path) -> Deployment:
    return Deployment(suite, tmp_path, Bounds(0, 5))


def test_hosts_come_for_what_waits_and_go_when_nothing_does(deployment: Deployment) -> None:
    deployment.run_for(20)
    assert deployment.fleet.desired == 0
    run_id = deployment.stage.start(step(300, 10))
    deployment.run_for(200)
    assert deployment.fleet.desired == 3
    assert deployment.plans[-1].present_hosts == 3
    assert deployment.plans[-1].wanted_slots == 10
    assert all(each.protected for each in deployment.fleet.state().living)
    assert deployment.run_until_final(run_id)["passed"] == 10
    idle_s = IDLE_NS / 1e9
    deployment.run_for(idle_s - 200, 20)
    assert deployment.fleet.desired == 3
    deployment.run_for(400, 20)
    assert deployment.fleet.desired == 0
    assert deployment.asked == [0, 1, 3, 2, 1, 0]


def test_a_load_that_comes_and_goes_moves_nothing(deployment: Deployment) -> None:
    for number in range(12):
        deployment.stage.start(step(60, 3 + 2 * (number % 3)))
        deployment.run_for(180, 20)
    assert deployment.asked == [1, 2]


def test_a_fork_that_comes_between_the_look_and_the_end_wins(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = deployment.stage
    first = stage.start(step(10, 1))
    deployment.run_until_final(first)
    asked = stage.ports.hosts.retire
    late: list[str] = []

    def retire(host_id: str) -> bool:
        if not late:
            late.append(stage.start(step(60, 1)))
            stage.ring()
        return asked(host_id)

    monkeypatch.setattr(stage.ports.hosts, "retire", retire)
    for _ in range(100):
        deployment.run_for(PERIOD_S)
        if late:
            break
    assert deployment.fleet.desired == 1
    assert deployment.run_until_final(late[0])["passed"] == 1


def test_an_instance_that_is_taken_back_loses_its_forks_and_they_run_elsewhere(
    deployment: Deployment,
) -> None:
    run_id = deployment.stage.start(step(200, 4, rerun_started=True, environment_retries=1))
    deployment.run_for(120)
    (lost,) = deployment.fleet.state().living
    deployment.fleet.interrupt(lost.instance_id)
    deployment.run_for(60)
    page = deployment.stage.report(run_id)
    # Long before their leases end: the cloud says that the instance has.
    assert {each["kind"] for each in page["environment_failures"]} == {"host_lost"}
    assert len(page["environment_failures"]) == 4
    assert deployment.run_until_final(run_id)["passed"] == 4


def test_an_instance_that_never_registers_is_told_and_not_waited_for(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment, "_follow", lambda: None)
    deployment.stage.start(step(1, 1))
    deployment.run_for(900)
    assert len(deployment.plans[-1].silent) == 1
    assert deployment.fleet.desired == 2


@pytest.mark.parametrize("seed", range(2))
def test_whatever_happens_the_bounds_hold_and_all_ends_well(
    seed: int, suite: Stage, tmp_path: Path
) -> None:
    dice = random.Random(seed)
    deployment = Deployment(suite, tmp_path, Bounds(dice.randrange(2), 5))
    runs = []
    for _ in range(16):
        if dice.random() < 0.3:
            count, seconds = dice.randrange(1, 12), dice.randrange(10, 200)
            runs.append(suite.start(step(seconds, count, rerun_started=True)))
        deployment.fleet.away = dice.random() < 0.1
        deployment.fleet.deaf_to = dice.choice(["", "", "", "desire", "retire", "protect", "ended"])
        living = [each for each in deployment.fleet._lives.values() if each.instance.lives]
        if living and dice.random() < 0.08:
            deployment.fleet.interrupt(dice.choice(living).instance.instance_id)
        deployment.run_for(dice.choice([30, 30, 60, 120, 720]), 30)
    deployment.fleet.away, deployment.fleet.deaf_to = False, ""
    for run_id in runs:
        totals = deployment.run_until_final(run_id)
        assert totals["passed"] + totals["env_failed"] == totals["requested"]
    deployment.run_for(5 * (IDLE_NS / 1e9 + 60), 60)
    assert deployment.fleet.desired == deployment.bounds.least
