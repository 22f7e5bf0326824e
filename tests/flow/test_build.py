"""A snapshot is stored only if it passes its own test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.errors import BadRequest, FailureKind, Forbidden, NotFound
from app.flow import build, recover, report, snapshots
from tests.flow.stage import PROJECT, Stage, definition, sim


def test_a_passing_candidate_is_stored_with_its_evidence(stage: Stage) -> None:
    page = stage.build(definition(setup=(sim("2s print installed"),), warm=(sim("1s"),)))
    assert (page["state"], page["snapshot"]) == ("verified", "task-suite@1")
    assert page["cost_usd"] > 0
    assert "installed\n" in [line["text"] for line in page["log"]]
    stored = stage.ports.snapshots.get(PROJECT, "task-suite")
    assert stored.ref == "task-suite@1"
    assert len(stored.evidence["test"]) == 3  # type: ignore[arg-type]
    assert stage.host.bundles.mounted() == (page["build_id"],)


def test_a_snapshot_of_a_moment_ago_can_be_restored(stage: Stage) -> None:
    """Its host, which has it and no other, has not come by with a heartbeat since."""
    stage.ports.hosts.register(stage.host.machines.fingerprint(), 8, fetches=False)
    build.start(stage.ports, PROJECT, definition(), None)
    for _ in range(60):
        stage.clock.advance(0.1)
        stage.world.pump()
        recover.tick(stage.ports)
        stage.ring()
    found = snapshots.every(stage.ports, PROJECT, stale=False)
    (page,) = snapshots.pages(stage.ports, PROJECT, found)
    assert (page["snapshot"], page["state"]) == ("task-suite@1", "verified")


def test_a_test_that_fails_refuses_the_candidate_and_nothing_is_stored(stage: Stage) -> None:
    page = stage.build(definition(test=sim("1s print broken exit 3")))
    assert page["state"] == "refused"
    assert page["error"]["code"] == "snapshot_refused"
    assert page["error"]["details"]["check"] == "test"
    assert "broken" in page["error"]["details"]["output"]
    assert stage.host.bundles.known() == ()
    with pytest.raises(NotFound):
        stage.ports.snapshots.get(PROJECT, "task-suite")


def test_a_test_that_hangs_is_refused_at_its_limit(stage: Stage) -> None:
    page = stage.build(definition(test=sim("500s", timeout_s=20)))
    assert page["state"] == "refused"
    assert "time limit" in page["error"]["message"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (sim("1s error missing exit 2"), "exit code 2"),
        (sim("900s", timeout_s=30), "limit of 30 s"),
    ],
)
def test_a_set_up_command_that_fails_or_hangs_ends_the_build(
    stage: Stage, command: object, said: str
) -> None:
    page = stage.build(definition(setup=(command,)))
    assert (page["state"], page["error"]["code"]) == ("failed", "setup_failed")
    assert said in page["error"]["message"]
    assert stage.host.machines.known() == ()
    assert stage.host.bundles.known() == ()


def test_an_image_that_does_not_boot_ends_the_build(stage: Stage) -> None:
    stage.world.fault("attach", FailureKind.GUEST_HUNG)
    page = stage.build(definition())
    assert (page["state"], page["error"]["code"]) == ("failed", "template_failed")
    assert stage.host.machines.known() == ()


def test_the_second_version_leaves_the_first(stage: Stage) -> None:
    stage.build(definition())
    page = stage.build(definition(test=sim("2s")))
    assert page["snapshot"] == "task-suite@2"
    assert stage.ports.snapshots.get(PROJECT, "task-suite").version == 2
    assert stage.ports.snapshots.get(PROJECT, "task-suite@1").version == 1


def test_bad_definitions_are_refused_before_anything_starts(stage: Stage) -> None:
    bad = (
        (replace(definition(), image="nix"), BadRequest, "unknown_image"),
        (replace(definition(), cap_micros=1), BadRequest, "cap_too_small"),
        (replace(definition(), egress=("169.254.169.254:80",)), Forbidden, "egress_not_allowed"),
        (replace(definition(), build_egress=("x:1",)), Forbidden, "egress_not_allowed"),
    )
    for given, kind, code in bad:
        with pytest.raises(kind) as refused:
            build.start(stage.ports, PROJECT, given, None)
        assert getattr(refused.value, "code", None) == code
    assert stage.ring() == 0


def test_a_build_that_outlives_its_money_is_ended(stage: Stage) -> None:
    given = definition(setup=(sim("5000s", timeout_s=9000),), cap_micros=5_000)
    page = stage.build(given)
    assert (page["state"], page["error"]["code"]) == ("failed", "build_capped")
    assert page["cost_usd"] <= 0.005


def test_a_build_that_no_host_takes_ends(tmp_path: Path) -> None:
    stage = Stage(tmp_path, hosts=0)
    build_id = str(build.start(stage.ports, PROJECT, definition(), None)["build_id"])
    stage.run_for(10)
    assert report.build(stage.ports, PROJECT, build_id)["state"] == "queued"
    stage.clock.advance(3600)
    stage.run_for(3)
    page = report.build(stage.ports, PROJECT, build_id)
    error: Any = page["error"]
    assert (page["state"], error["code"]) == ("failed", "no_capacity")
    assert page["cost_usd"] == 0
    stage.stores.close()
