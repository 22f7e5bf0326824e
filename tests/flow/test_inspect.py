"""A bundle that is found to have changed while forks of it live: they end as that, whatever they have done."""

from __future__ import annotations

from typing import Any

from app.flow.inspect import inspect
from infra.fakes.machines import FakeBundles
from tests.flow.stage import Stage, definition, sim, spec


def started(stage: Stage, **more: Any) -> str:
    """A run whose forks live."""
    assert stage.build(definition(test=sim("exit 0"), repeat=1))["state"] == "verified"
    run_id = stage.start(spec(count=2, **more))
    stage.tick()
    return run_id


def spoil(stage: Stage) -> None:
    bundles = stage.host.bundles
    assert isinstance(bundles, FakeBundles)
    (bundle_id,) = bundles.mounted()
    bundles.spoil(bundle_id)


def test_live_forks_of_a_bundle_that_has_changed_end_as_that(stage: Stage) -> None:
    run_id = started(stage, exec=sim("50s exit 0"))
    spoil(stage)
    inspect(stage.ports, stage.host)
    stage.ring()
    page = stage.report(run_id)
    assert page["final"]
    for fork in page["forks"]:
        failure = fork["failure"]
        assert (fork["outcome"], fork["reward"]) == ("env_failed", None)
        assert (failure["kind"], failure["phase"]) == ("snapshot_corrupt", "exec")
        assert not failure["retryable"]
        assert not failure["task_may_have_caused"]
        assert failure["evidence"]["chunk"] == 7
    assert stage.host.machines.known() == ()


def test_it_is_refused_and_kept(stage: Stage) -> None:
    started(stage, exec=sim("50s exit 0"))
    spoil(stage)
    inspect(stage.ports, stage.host)
    assert stage.host.bundles.mounted() == ()
    page = stage.run_until_final(stage.start(spec(count=1)))
    assert page["forks"][0]["failure"]["kind"] == "snapshot_corrupt"
    assert page["forks"][0]["failure"]["phase"] == "restore"
    assert page["forks"][0]["attempts"] == 1
    assert len(stage.host.bundles.known()) == 1


def test_a_held_fork_of_it_ends_too(stage: Stage) -> None:
    run_id = started(stage, exec=None, hold_ns=600 * 10**9)
    spoil(stage)
    inspect(stage.ports, stage.host)
    kinds = [fork["failure"]["kind"] for fork in stage.report(run_id)["forks"]]
    assert kinds == ["snapshot_corrupt"] * 2


def test_forks_of_a_sound_bundle_go_on(stage: Stage) -> None:
    run_id = started(stage, exec=sim("5s exit 0"))
    inspect(stage.ports, stage.host)
    assert stage.run_until_final(run_id)["totals"]["passed"] == 2


def test_another_worker_s_forks_are_left_to_it(stage: Stage) -> None:
    run_id = started(stage, exec=sim("5s exit 0"))
    spoil(stage)
    for claimed in stage.ports.attempts.held_by("host0"):
        assert stage.ports.attempts.adopt(claimed.attempt.attempt_id, "host0", "host0/2")
    inspect(stage.ports, stage.host)
    assert not stage.report(run_id)["final"]
