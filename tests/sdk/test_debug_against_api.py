"""A failed fork is kept, looked into and run again: client and command line against the real API and fake machines."""

from __future__ import annotations

import time

import pytest
from typer.testing import CliRunner, Result

from promigence import Conflict, NotFound, Promigence
from promigence._engine import Pace
from promigence.cli import app
from tests.api.world import Door
from tests.sdk.door import SUITE, client_of


@pytest.fixture
def client(door: Door) -> Promigence:
    """Where it pauses, the time of the stage passes. Not closed: its transport is the test client's."""
    made = client_of(
        door, door.key, Pace(clock=time.monotonic, sleep=lambda _: door.stage.run_for(1))
    )
    made.snapshots.build(SUITE)
    return made


def cli(client: Promigence, *args: str) -> Result:
    class Open:
        def __enter__(self) -> Promigence:
            return client

        def __exit__(self, *_: object) -> None:
            """It is the test's."""

    result = CliRunner().invoke(app, args, obj=Open)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


def failed(door: Door, client: Promigence, text: str = "1s print why error oh exit 7") -> str:
    """A fork of a new run that failed and is kept."""
    run = client.runs.start(
        [{"snapshot": "task-suite", "count": 1, "key": "k", "env": {"SEED": "17"}}],
        spend_cap=1.0,
        exec={"sh": f"sim: {text}", "timeout_seconds": 60, "env": {"TOKEN": "s3cret"}},
        keep_failed=1,
        verify_each=False,
        egress=["policy.internal:8000"],
    )
    door.stage.run_for(4)
    (fork,) = client.runs.forks(run["run_id"])
    return fork["fork_id"]


def test_a_fork_is_kept_looked_into_and_released(door: Door, client: Promigence) -> None:
    fork_id = failed(door, client)
    page = client.forks.get(fork_id)
    assert page["kept"] is not None
    assert (page["kept"]["outcome"], page["env"]) == ("failed", {"SEED": "17"})
    assert client.forks.exec(fork_id, {"sh": "sim: print hi"}, "mine")["stdout"] == "hi\n"
    assert client.forks.logs(fork_id)["text"] == "why\n"
    assert client.forks.logs(fork_id, "mine")["text"] == "hi\n"
    assert client.forks.console(fork_id)["live"] is True
    with pytest.raises(Conflict) as refused:
        client.forks.release(fork_id, True)
    assert refused.value.code == "verdict_stands"
    assert client.forks.release(fork_id)["outcome"] == "failed"
    report = client.runs.wait(page["run_id"], timeout=30)
    assert report["totals"]["failed"] == 1
    assert client.forks.console(fork_id)["live"] is False
    assert client.forks.logs(fork_id, stream="stderr")["text"] == "oh\n"


def test_a_running_command_is_followed_to_its_end(door: Door, client: Promigence) -> None:
    fork_id = failed(door, client, "20s print working exit 3")
    heard: list[str] = []
    told = client.forks.logs(fork_id, on_text=heard.append)
    assert ("".join(heard), told["state"], told["bytes"]) == ("working\n", "ended", 8)


def test_a_fork_like_it_is_held_and_runs_the_same(door: Door, client: Promigence) -> None:
    fork_id = failed(door, client)
    told = client.forks.reproduce(fork_id, hold_seconds=300)
    page = client.forks.get(told["fork_id"])
    assert (page["snapshot"], page["key"], page["env"]) == ("task-suite@1", "k", {"SEED": "17"})
    assert (page["egress"], page["state"]) == (["policy.internal:8000"], "ready")
    (run,) = client.runs.list({"reproduces": fork_id})
    assert run["quote"]["max_cost_usd"] == run["quote"]["worst_case_usd"]
    result = cli(client, "forks", "reproduce", fork_id, "--hold-seconds", "300", "--run")
    assert (result.exit_code, "why\n" in result.stdout) == (0, True)
    assert "then: exit 7; now: exit 7: the same" in result.stderr


def test_what_cannot_be_reproduced_is_said(door: Door, client: Promigence) -> None:
    fork_id = failed(door, client)
    with pytest.raises(NotFound) as refused:
        client.forks.reproduce("fork_of_nobody")
    assert refused.value.code == "unknown_fork"
    with pytest.raises(Conflict):
        client.snapshots.delete("task-suite@1")  # a fork that is kept needs it
    client.forks.release(fork_id)
    door.stage.run_for(3)
    client.snapshots.delete("task-suite@1")
    with pytest.raises(NotFound) as refused:
        client.forks.reproduce(fork_id)
    assert refused.value.code == "unknown_snapshot"


def test_a_person_reads_why_it_failed(door: Door, client: Promigence) -> None:
    fork_id = failed(door, client)
    shown = cli(client, "forks", "get", fork_id).stdout
    assert f"{fork_id}  kept until" in shown
    assert "its command ended with exit 7 after 1.0 s\n  | oh\n" in shown
    assert "s3cret" not in shown
    assert (
        "kept: failed" in cli(client, "runs", "forks", client.forks.get(fork_id)["run_id"]).stdout
    )
