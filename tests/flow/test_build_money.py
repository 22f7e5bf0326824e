"""A build's money: its template has its own part, and whatever interrupts it costs no more than what has happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from app.domain.ledger import START_WINDOW_NS
from app.domain.run import RunState
from app.domain.snapshot import Build
from app.errors import Unavailable
from app.flow import bill, build, recover, report, stop, template
from app.flow.recover import LEFT_ALONE_NS
from app.ports import Attempts, Builds
from tests.flow.stage import PROJECT, Stage, definition, sim

AWAY = Unavailable("database_away", "planted")


class Met:
    """A port whose verbs are as they were, but one that is met by something else."""

    def __init__(self, port: object, **instead: Callable[..., object]) -> None:
        self._port, self._instead = port, instead

    def __getattr__(self, name: str) -> Any:
        return self._instead.get(name) or getattr(self._port, name)


def test_a_template_takes_nothing_of_what_its_verification_forks_are_promised(
    stage: Stage,
) -> None:
    def billed_meanwhile(*given: Any) -> None:
        stage.stores.builds.say(*given)
        bill.tick(stage.ports)
        recover.watch_host(stage.ports, stage.host)

    builds = Met(stage.stores.builds, say=billed_meanwhile)
    stage.ports = replace(stage.ports, builds=cast(Builds, builds))
    # Of 5,000 micro-dollars 2,500 are the template's: 250 s. With all of it, it would live for 300.
    page = stage.build(definition(setup=(sim("300s", timeout_s=9000),), cap_micros=5_000))
    assert (page["state"], page["error"]["code"]) == ("failed", "build_capped")
    assert page["cost_usd"] <= 0.0025


def test_forks_verify_on_what_a_template_left_to_them(stage: Stage) -> None:
    given = definition(setup=(sim("200s", timeout_s=9000),), cap_micros=5_000)
    assert stage.build(given)["state"] == "verified"


def test_a_build_that_is_cancelled_while_it_freezes_spends_nothing_more(stage: Stage) -> None:
    def cancelled_just_then(build_id: str, candidate: Any) -> None:
        stage.stores.builds.frozen(build_id, candidate)
        stop.cancel(stage.ports, PROJECT, run_of(stage, build_id))

    builds = Met(stage.stores.builds, frozen=cancelled_just_then)
    stage.ports = replace(stage.ports, builds=cast(Builds, builds))
    page = stage.build(definition())
    assert page["state"] == "failed"
    run_id = run_of(stage, page["build_id"])
    assert stage.ports.runs.get(PROJECT, run_id).state is RunState.ENDED
    assert stage.ports.runs.forks(run_id) == ()
    assert stage.ports.snapshots.list(PROJECT) == ()
    assert stage.host.bundles.known() == ()


def test_a_candidate_without_verification_forks_is_not_stored(stage: Stage) -> None:
    """Its worker died between the note of it and the end of its template."""

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    build_id = str(build.start(stage.ports, PROJECT, definition(), None)["build_id"])
    ports = stage.ports
    attempts = Met(stage.stores.attempts, close=dies)
    stage.ports = replace(ports, attempts=cast(Attempts, attempts))
    with pytest.raises(KeyboardInterrupt):
        stage.tick()
    stage.ports = ports
    assert found(stage, build_id).candidate is not None
    stage.bells.waiting.clear()
    stage.hosts["host0"] = replace(stage.host, claim="host0/2")
    recover.adopt(stage.ports, stage.host)
    stage.run_for(3)
    page = report.build(stage.ports, PROJECT, build_id)
    assert page["state"] == "failed"
    assert page["snapshot"] is None
    assert stage.host.bundles.known() == ()


@pytest.mark.parametrize("outage_s", [10, 200])
def test_a_build_whose_database_goes_away_does_not_burn_its_lease(
    stage: Stage, outage_s: int
) -> None:
    until_ns = 0

    def say(*given: Any) -> None:
        nonlocal until_ns
        if given[1] == "setup" and not until_ns:
            until_ns = stage.clock.boot_ns() + outage_s * 10**9
        if stage.clock.boot_ns() < until_ns:
            raise AWAY
        stage.stores.builds.say(*given)

    builds = Met(stage.stores.builds, say=say)
    stage.ports = replace(stage.ports, builds=cast(Builds, builds))
    page = stage.build(definition(setup=(sim("2s", timeout_s=9000),)))
    assert page["state"] == ("verified" if outage_s == 10 else "failed")
    assert page["cost_usd"] < 0.005
    assert stage.host.machines.known() == ()


def test_a_template_whose_end_could_not_be_saved_is_charged_what_it_lived(stage: Stage) -> None:
    def away(*_: object) -> None:
        raise AWAY

    given = definition(setup=(sim("2s exit 1", timeout_s=9000),))
    build_id = str(build.start(stage.ports, PROJECT, given, None)["build_id"])
    ports = stage.ports
    stage.ports = replace(ports, attempts=cast(Attempts, Met(stage.stores.attempts, close=away)))
    with pytest.raises(Unavailable):
        stage.tick()
    stage.ports = ports
    stage.run_for(LEFT_ALONE_NS / 1e9 + 3)
    run = stage.ports.runs.get(PROJECT, run_of(stage, build_id))
    assert run.state is RunState.ENDED
    assert 0 < run.charged_micros < 10 * 10


def test_a_template_that_was_opened_and_never_told_is_given_up(stage: Stage) -> None:
    def opened_and_not_told(*given: Any) -> None:
        stage.stores.attempts.open(*given)
        raise AWAY

    build_id = str(build.start(stage.ports, PROJECT, definition(), None)["build_id"])
    ports = stage.ports
    attempts = Met(stage.stores.attempts, open=opened_and_not_told)
    stage.ring_one(stage.bells.waiting.popleft())  # place
    stage.bells.waiting.clear()
    stage.ports = replace(ports, attempts=cast(Attempts, attempts))
    with pytest.raises(Unavailable):
        template.advance(stage.ports, stage.host, build_id)
    stage.ports = ports
    stage.run_for(START_WINDOW_NS / 1e9 + 3)
    assert report.build(stage.ports, PROJECT, build_id)["state"] == "failed"


def test_a_build_whose_host_is_gone_for_good_ends(stage: Stage) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    build_id = str(build.start(stage.ports, PROJECT, definition(), None)["build_id"])
    ports = stage.ports
    stage.ports = replace(ports, attempts=cast(Attempts, Met(stage.stores.attempts, close=dies)))
    with pytest.raises(KeyboardInterrupt):
        stage.tick()
    stage.ports = ports
    stage.hosts.clear()
    stage.clock.advance(1800)
    stage.run_for(3)
    run_id = run_of(stage, build_id)
    assert stage.ports.runs.get(PROJECT, run_id).state is RunState.ENDED
    # It may come back, and settle what it holds.
    assert report.build(stage.ports, PROJECT, build_id)["state"] == "verifying"
    stage.clock.advance(1801)
    stage.run_for(3)
    page: Any = report.build(stage.ports, PROJECT, build_id)
    assert page["state"] == "failed"
    assert "silent" in page["error"]["message"]


def run_of(stage: Stage, build_id: str) -> str:
    return found(stage, build_id).run_id


def found(stage: Stage, build_id: str) -> Build:
    row = stage.ports.builds.find(build_id)
    assert row is not None
    return row
