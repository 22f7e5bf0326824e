"""Lost bells, dead workers, dead hosts, and two of everything."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.run import Closing
from app.errors import StaleClaim
from app.flow import bill, recover
from tests.flow.stage import Stage, definition, sim, spec


def test_every_bell_may_be_lost(suite: Stage) -> None:
    run_id = suite.start(spec("5s", count=3, verify_each=True))
    for number in range(60):
        suite.clock.advance(1)
        suite.world.pump()
        if number % 2:
            suite.bells.waiting.clear()  # whatever ended just now is heard by nobody
        suite.tick()
    assert suite.report(run_id)["totals"]["passed"] == 3


def test_bells_may_ring_twice_and_out_of_order(suite: Stage) -> None:
    chance = random.Random(7)
    run_id = suite.start(spec("3s", count=10, verify_each=True))
    for _ in range(60):
        doubled = [*suite.bells.waiting, *suite.bells.waiting]
        chance.shuffle(doubled)
        suite.bells.waiting.clear()
        suite.bells.waiting.extend(doubled)
        suite.run_for(0.5, step=0.5)
    page = suite.run_until_final(run_id)
    assert page["totals"]["passed"] == 10
    assert {count for name, count in suite.world.starts.items()} == {1}


def test_a_restarted_worker_adopts_running_commands(suite: Stage) -> None:
    run_id = suite.start(spec("20s", count=2))
    suite.run_for(3)
    suite.hosts["host0"] = replace(suite.host, claim="host0/2")
    recover.adopt(suite.ports, suite.host)
    page = suite.run_until_final(run_id)
    assert page["totals"]["passed"] == 2
    assert page["environment_failures"] == []
    assert {count for name, count in suite.world.starts.items()} == {1}


def test_a_command_whose_intent_the_guest_never_saw_is_started_by_the_next_worker(
    suite: Stage,
) -> None:
    run_id = suite.start(spec("20s", count=1))
    suite.run_for(3)
    (box,) = suite.world.boxes.values()
    lost = next(exec_id for exec_id in box.jobs if exec_id.startswith("task_"))
    del box.jobs[lost]  # as if the first byte of it had never been sent
    suite.hosts["host0"] = replace(suite.host, claim="host0/2")

    recover.adopt(suite.ports, suite.host)

    assert lost in box.jobs
    assert suite.run_until_final(run_id)["totals"]["passed"] == 1


def test_a_zombie_that_returns_late_overwrites_nothing(suite: Stage) -> None:
    run_id = suite.start(spec("20s", count=1))
    suite.run_for(3)
    attempt_id = suite.ports.runs.forks(run_id)[0].attempt_id or ""
    old = suite.ports.attempts.get(attempt_id)
    assert old is not None
    suite.hosts["host0"] = replace(suite.host, claim="host0/2")
    recover.adopt(suite.ports, suite.host)
    with pytest.raises(StaleClaim):
        suite.ports.attempts.close(old, Closing(suite.clock.boot_ns(), None))
    assert suite.run_until_final(run_id)["totals"]["passed"] == 1


def test_a_host_that_is_gone_is_charged_its_leases_and_no_more(
    stage: Stage, tmp_path: Path
) -> None:
    stage.build(definition())
    run_id = stage.start(spec("50s", count=2, environment_retries=0))
    stage.run_for(3)
    host = stage.hosts.pop("host0")
    del stage.worlds["host0"]
    page = stage.run_until_final(run_id)
    assert host.machines.known() != ()
    assert page["totals"]["env_failed"] == 2
    assert {each["kind"] for each in page["environment_failures"]} == {"host_lost"}
    assert page["cost"]["total_usd"] <= page["cost"]["spend_cap_usd"]


def test_a_host_that_comes_back_tells_what_its_keepers_saw(suite: Stage) -> None:
    given = spec(count=2, exec=sim("5000s", timeout_s=9000), cap_usd=0.004, environment_retries=0)
    run_id = suite.start(given)
    suite.run_for(3)
    first, second = suite.ports.runs.forks(run_id)
    suite.clock.advance(250)  # nobody is there, and the leases end
    suite.world.pump()
    suite.bells.waiting.clear()
    assert suite.host.machines.death(first.attempt_id or "") is not None
    recover.leave(suite.ports, suite.host)
    page = suite.report(run_id)
    assert {fork["reason"] for fork in page["forks"]} == {"run_exhausted"}
    assert page["totals"]["capped"] == 2
    assert page["cost"]["total_usd"] <= page["cost"]["spend_cap_usd"]
    assert second.attempt_id not in suite.host.machines.known()


def test_two_billing_workers_are_harmless(suite: Stage) -> None:
    costs = []
    for workers in (1, 3):
        run_id = suite.start(spec("30s", count=4))
        for _ in range(40):
            suite.run_for(1)
            for _ in range(workers - 1):
                bill.tick(suite.ports)
        page = suite.report(run_id)
        assert page["totals"]["passed"] == 4
        costs.append(page["cost"])
    assert costs[0] == costs[1]
