"""What is stored elsewhere is proved: one more fork, of what was stored, passes the snapshot's own test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from app.domain.run import Group
from app.errors import EnvironmentFault, FailureKind, NotFound
from app.flow import verify
from infra.fakes.machines import FakeBundles
from tests.flow.stage import PROJECT, Stage, definition, sim, spec


@pytest.fixture
def away(tmp_path: Path) -> Iterator[Stage]:
    """One host whose bundles are stored elsewhere."""
    made = Stage(tmp_path, elsewhere=True)
    yield made
    made.stores.close()


def steps(page: dict[str, Any]) -> list[tuple[str, str]]:
    return [(line["step"], line["text"]) for line in page["log"]]


def nothing_is_left(stage: Stage, build_id: str) -> None:
    assert stage.host.machines.known() == ()
    assert stage.host.bundles.known() == ()
    assert (
        not (cast(FakeBundles, stage.host.bundles)._elsewhere or Path("/"))
        .joinpath(build_id)
        .exists()
    )
    with pytest.raises(NotFound):
        stage.ports.snapshots.get(PROJECT, "task-suite")


def test_a_stored_candidate_is_proved_and_the_log_says_each_step(away: Stage) -> None:
    page = away.build(definition(on_fork=(sim("1s"),)))
    assert (page["state"], page["snapshot"]) == ("verified", "task-suite@1")
    said = [(step, text.partition(" ")[0]) for step, text in steps(page)][-5:]
    assert said == [
        ("store", "storing"),
        ("store", "stored,"),
        ("prove", "a"),
        ("prove", "its"),
        ("verified", "stored"),
    ]
    proof = cast(dict[str, Any], away.ports.snapshots.get(PROJECT, "task-suite").evidence["proof"])
    assert proof["test_seconds"] == 1
    assert proof["came_up_seconds"] >= 1  # the hook
    assert away.host.machines.known() == ()


def test_no_fork_gets_the_room_of_a_proof_and_it_is_free_afterwards(
    away: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe, free = type(away.host.guest).probe, []

    def looked(*given: Any) -> Any:
        free.append(away.ports.hosts.list()[0].free_slots)
        return probe(*given)

    monkeypatch.setattr(type(away.host.guest), "probe", looked)
    assert away.build(definition(repeat=1))["state"] == "verified"
    assert free[-1] == 99
    assert away.ports.hosts.list()[0].free_slots == 100


def test_the_proof_costs_the_run_nothing(away: Stage, tmp_path: Path) -> None:
    here = Stage(tmp_path / "here")
    cost = here.build(definition())["cost_usd"]
    assert away.build(definition())["cost_usd"] == cost
    here.stores.close()


def test_what_stays_on_its_hosts_disk_is_not_proved_again(suite: Stage) -> None:
    assert "proof" not in suite.ports.snapshots.get(PROJECT, "task-suite").evidence


def spoil_the_proof(stage: Stage, script: str) -> None:
    """The test passes in the forks that verify; then it does what this says."""
    bundles = cast(FakeBundles, stage.host.bundles)
    store = bundles.store

    def stored(bundle_id: str) -> Any:
        bundle = store(bundle_id)
        stage.world.spoil("test", script)
        return bundle

    bundles.store = stored  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("script", "how"),
    [("1s print broken exit 3", "ended with exit code 3"), ("900s", "ran past its time limit")],
)
def test_a_test_that_fails_in_what_was_stored_refuses_it(
    away: Stage, script: str, how: str
) -> None:
    spoil_the_proof(away, script)
    page = away.build(definition())
    assert (page["state"], page["error"]["code"]) == ("refused", "snapshot_refused")
    assert page["error"]["details"]["check"] == "proof"
    assert how in page["error"]["message"]
    if "broken" in script:
        assert "broken" in page["error"]["details"]["output"]
    nothing_is_left(away, page["build_id"])


def proof_meets(stage: Stage, step: str, times: int) -> None:
    bundles = cast(FakeBundles, stage.host.bundles)
    store = bundles.store

    def stored(bundle_id: str) -> Any:
        bundle = store(bundle_id)
        stage.world.fault(step, FailureKind.RESTORE_FAILED, times=times)
        return bundle

    bundles.store = stored  # type: ignore[method-assign]


@pytest.mark.parametrize("step", ["restore", "attach", "wake", "open", "probe", "start", "end"])
def test_a_fork_that_does_not_come_up_twice_refuses_it_with_what_was_seen(
    away: Stage, step: str
) -> None:
    proof_meets(away, step, times=2)
    page = away.build(definition())
    assert (page["state"], page["error"]["details"]["check"]) == ("refused", "proof")
    assert f"planted in {step}" in page["error"]["message"]
    assert "console_tail" in page["error"]["details"]["output"]
    nothing_is_left(away, page["build_id"])


def test_a_fault_that_passes_is_tried_again(away: Stage) -> None:
    proof_meets(away, "wake", times=1)
    page = away.build(definition())
    assert page["state"] == "verified"
    assert any("planted in wake" in text for step, text in steps(page) if step == "prove")


def test_a_candidate_that_cannot_be_stored_is_refused_with_the_reason(
    away: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: object, bundle_id: str) -> None:
        raise EnvironmentFault(
            FailureKind.SNAPSHOT_UNAVAILABLE, "the key may not be used", reason="key_denied"
        )

    monkeypatch.setattr(FakeBundles, "store", denied)
    page = away.build(definition())
    assert (page["state"], page["error"]["details"]["check"]) == ("failed", "store")
    assert "the key may not be used" in page["error"]["message"]
    nothing_is_left(away, page["build_id"])


def test_a_cloud_that_is_away_for_a_while_costs_no_build_its_verification(
    away: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked = FakeBundles.store, []

    def deaf(self: FakeBundles, bundle_id: str) -> Any:
        asked.append(bundle_id)
        if len(asked) <= 3:
            raise EnvironmentFault(
                FailureKind.SNAPSHOT_UNAVAILABLE, "AWS does not answer", reason="cloud_away"
            )
        return store(self, bundle_id)

    monkeypatch.setattr(FakeBundles, "store", deaf)
    page = away.build(definition())
    assert (page["state"], len(asked)) == ("verified", 4)
    assert [text for step, text in steps(page) if step == "wait"] == [
        "it could not be stored yet: AWS does not answer"
    ]


def test_without_room_the_proof_waits_and_blocks_nobody(away: Stage) -> None:
    assert away.build(definition(name="other"))["state"] == "verified"
    bundles = cast(FakeBundles, away.host.bundles)
    store = bundles.store

    def full(bundle_id: str) -> Any:
        away.ports.hosts.register(away.host.machines.fingerprint(), 1)
        away.ports.hosts.heartbeat("host0", away.host.bundles.mounted())
        if not busy:
            busy.append(away.start(spec("30s", groups=(Group("other", 1),))))
            away.ring()
        return store(bundle_id)

    busy: list[str] = []
    bundles.store = full  # type: ignore[method-assign]
    page = away.build(definition())
    waits = [text for step, text in steps(page) if step == "wait"]
    assert len(waits) == 1
    assert "no room" in waits[0]
    assert page["state"] == "verified"
    assert away.run_until_final(busy[0])["totals"]["passed"] == 1


def test_what_another_process_has_settled_meanwhile_is_not_proved_again(away: Stage) -> None:
    bundles = cast(FakeBundles, away.host.bundles)
    store, seen = bundles.store, Counter[str]()

    def meanwhile(bundle_id: str) -> Any:
        seen[bundle_id] += 1
        bundle = store(bundle_id)
        if seen[bundle_id] == 1:
            verify.verify(away.ports, away.host, bundle_id)  # by the process that drains
            away.world.fault("restore", FailureKind.RESTORE_FAILED)
        return bundle

    bundles.store = meanwhile  # type: ignore[method-assign]
    page = away.build(definition())
    assert page["state"] == "verified"
    assert away.world.planted("restore") == 1
    assert sum("came up" in text for _, text in steps(page)) == 1


def test_a_crash_in_the_proof_is_gone_on_from(away: Stage) -> None:
    bundles = cast(FakeBundles, away.host.bundles)
    store = bundles.store
    crashed: list[str] = []

    def once(bundle_id: str) -> Any:
        bundle = store(bundle_id)
        if not crashed:
            crashed.append(bundle_id)
            raise Crashed
        return bundle

    bundles.store = once  # type: ignore[method-assign]
    with pytest.raises(Crashed):
        away.build(definition())
    (build_id,) = crashed
    assert bundles.known() == (build_id,)
    verify.verify(away.ports, away.host, build_id)
    assert away.ports.snapshots.get(PROJECT, "task-suite").ref == "task-suite@1"


class Crashed(BaseException):
    """The process ended here."""
