"""The client against the real API: real rows, fake machines, and time that passes only while the client waits."""

from __future__ import annotations

from pathlib import Path

import pytest

import promigence
from app.domain.machine import DeathCause
from app.errors import FailureKind
from promigence import (
    BadRequest,
    Conflict,
    EnvironmentFailure,
    Forbidden,
    NotFound,
    Promigence,
    SnapshotRefused,
    Unauthorized,
)
from promigence.types import QuoteTerms, Run
from tests.api.world import Door
from tests.sdk.door import SUITE, client_of


@pytest.fixture
def client(door: Door) -> Promigence:
    """Not closed: its transport is the test client's."""
    return client_of(door, door.key)


@pytest.fixture
def suite(client: Promigence) -> str:
    return client.snapshots.build(SUITE)["name"]


def held_fork(door: Door, client: Promigence, suite: str) -> str:
    run = client.runs.start(suite, count=1, spend_cap=10.0, hold_seconds=600, verify_each=False)
    door.stage.run_for(2)
    (fork,) = client.runs.forks(run["run_id"])
    assert fork["state"] == "ready"
    return fork["fork_id"]


def test_a_step_from_quote_to_rewards(client: Promigence, suite: str) -> None:
    terms: QuoteTerms = {
        "count": 3,
        "spend_cap": 1.0,
        "exec": {"sh": "sim: 1s exit 0", "timeout_seconds": 60},
        "labels": {"step": "17"},
    }
    quote = client.runs.quote(suite, **terms)
    run = client.runs.start(suite, **terms, quote_id=quote["quote_id"])
    looks: list[Run] = []
    report = client.runs.wait(run["run_id"], on_progress=looks.append)
    assert (run["state"], run["quote"]["quote_id"]) == ("queued", quote["quote_id"])
    assert report["totals"]["passed"] == 3
    assert report["cost"]["total_usd"] <= quote["max_cost_usd"] <= 1.0
    assert promigence.rewards(report)["rewards"] == [1.0, 1.0, 1.0]
    assert looks[-1]["final"]
    assert [one["run_id"] for one in client.runs.list({"step": "17"})] == [run["run_id"]]
    assert "forks" not in client.runs.report(run["run_id"], forks=False)


def test_a_run_is_heard_by_its_events_until_it_has_ended(client: Promigence, suite: str) -> None:
    run = client.runs.start(suite, count=2, spend_cap=1.0, exec={"sh": "sim: 1s exit 0"})
    told = list(client.runs.events(run["run_id"]))
    assert [event["number"] for event in told] == list(range(1, len(told) + 1))
    assert (told[0]["kind"], told[-1]["kind"]) == ("run_started", "run_ended")
    assert list(client.runs.events(run["run_id"], after=5)) == told[5:]
    assert list(client.runs.events(run["run_id"], after=len(told))) == []
    with pytest.raises(NotFound):
        list(client.runs.events("run_1"))


def test_a_rule_that_stops_a_run_is_in_its_report(
    door: Door, client: Promigence, suite: str
) -> None:
    door.stage.world.fault("wake", FailureKind.BARRIER_FAILED)
    run = client.runs.start(
        suite,
        count=4,
        spend_cap=1.0,
        exec={"sh": "sim: 60s exit 0"},
        environment_retries=0,
        stop_when={"env_failed_share": 0.25},
    )
    report = client.runs.wait(run["run_id"])
    assert (report["totals"]["env_failed"], report["totals"]["cancelled"]) == (1, 3)
    assert report["stopped"] == client.runs.get(run["run_id"])["stopped"]
    assert report["stopped"] is not None
    assert report["stopped"]["stop_when"] == {"env_failed_share": 0.25}


def test_the_usage_statement_says_what_the_reports_said(client: Promigence, suite: str) -> None:
    runs = [
        client.runs.start(suite, count=n, spend_cap=1.0, exec={"sh": "sim: 1s exit 0"})
        for n in (1, 2)
    ]
    reports = [client.runs.wait(run["run_id"]) for run in runs]
    statement = client.usage(by=("day", "snapshot"))
    by_snapshot = {row["snapshot"]: row for row in statement["rows"]}
    assert set(by_snapshot) == {"task-suite", "task-suite@1"}
    charged = sum(report["cost"]["total_usd"] for report in reports)
    assert by_snapshot["task-suite@1"]["charged_usd"] == round(charged, 6)
    assert by_snapshot["task-suite@1"]["forks"] == 3
    with pytest.raises(BadRequest) as caught:
        client.usage("2027-01-02", "2027-01-01")
    assert caught.value.code == "bad_window"


def test_a_repeated_key_starts_one_run(client: Promigence, suite: str) -> None:
    first, second = (
        client.runs.start(
            suite, count=1, spend_cap=1.0, exec={"sh": "sim: 1s exit 0"}, idempotency_key="step-17"
        )
        for _ in range(2)
    )
    assert first["run_id"] == second["run_id"]
    with pytest.raises(Conflict) as caught:
        client.runs.start(
            suite, count=2, spend_cap=1.0, exec={"sh": "sim: 1s exit 0"}, idempotency_key="step-17"
        )
    assert caught.value.code == "idempotency_mismatch"


def test_a_held_fork_from_command_to_release(
    door: Door, client: Promigence, suite: str, tmp_path: Path
) -> None:
    fork_id = held_fork(door, client, suite)
    result = client.forks.exec(fork_id, {"sh": "sim: 1s print hello exit 3"}, "x-1")
    assert (result["exec_id"], result["exit_code"]) == ("x-1", 3)
    assert client.forks.exec(fork_id, {"sh": "sim: 1s print hello exit 3"}, "x-1") == result
    local = tmp_path / "patch"
    local.write_bytes(b"\x00\xff" * 1000)
    assert client.forks.upload(fork_id, local, "/workspace/patch")["bytes"] == 2000
    client.forks.download(fork_id, "/workspace/patch", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == local.read_bytes()
    assert client.forks.release(fork_id, passed=True, reward=0.5)["reward"] == 0.5
    assert client.forks.release(fork_id, passed=True, reward=0.5)["outcome"] == "passed"
    with pytest.raises(Conflict, match="release"):
        client.forks.release(fork_id, passed=False)


def test_a_lost_machine_is_an_exception(door: Door, client: Promigence, suite: str) -> None:
    fork_id = held_fork(door, client, suite)
    (machine,) = door.stage.host.machines.live()[:1]
    door.stage.world.die(machine.name, DeathCause.SIGNAL, 9)  # from outside: nobody of ours asked
    with pytest.raises(EnvironmentFailure) as caught:
        client.forks.exec(fork_id, {"sh": "sim: 1s exit 0"})
    assert caught.value.fork_id == fork_id
    assert caught.value.failure["kind"] == "guest_lost"


def test_files_of_a_definition_are_uploaded(client: Promigence, tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "main.py").write_text("print(1)\n")
    path = tmp_path / "task.toml"
    path.write_text(
        'name = "with-files"\nimage = "debian-12"\n'
        'test = { sh = "sim: 1s exit 0" }\n[files]\n"./repo" = "/workspace/repo"\n'
    )
    assert client.snapshots.build(path)["snapshot"] == "with-files@1"
    assert client.snapshots.build(path)["snapshot"] == "with-files@2"
    assert {one["snapshot"] for one in client.snapshots.list()} == {"with-files@1", "with-files@2"}
    assert client.snapshots.delete("with-files@1") == {"deleted": ["with-files@1"]}


def test_an_environment_that_cannot_pass_is_refused(client: Promigence) -> None:
    with pytest.raises(SnapshotRefused) as caught:
        client.snapshots.build({**SUITE, "test": {"sh": "sim: 1s exit 1", "timeout_seconds": 60}})
    assert caught.value.code == "snapshot_refused"
    assert caught.value.details["check"]
    assert caught.value.details["reproduce"]
    with pytest.raises(NotFound):
        client.snapshots.get("task-suite")


def test_bad_input_has_its_class_and_code(door: Door, client: Promigence, suite: str) -> None:
    with pytest.raises(NotFound, match="nothing"):
        client.runs.quote("nothing", count=1, spend_cap=1.0)
    with pytest.raises(BadRequest) as caught:
        client.runs.quote(suite, count=0, spend_cap=1.0)
    assert caught.value.code == "count_out_of_range"
    with pytest.raises(BadRequest) as caught:
        client.runs.start(suite, count=1, spend_cap=0.000_01, exec={"sh": "sim: 1s exit 0"})
    assert caught.value.code == "cap_too_small"
    assert caught.value.details["smallest_cap_usd"] > 0
    with pytest.raises(Forbidden) as refused:
        client.runs.quote(suite, count=1, spend_cap=1.0, egress=["elsewhere.test:443"])
    assert refused.value.code == "egress_not_allowed"
    with pytest.raises(Unauthorized) as unknown:
        client_of(door, "wrong-key").hosts.list()
    assert unknown.value.request_id
    assert client.hosts.list()[0]["state"] == "up"
