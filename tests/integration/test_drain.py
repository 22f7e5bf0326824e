"""A worker that drains beside the one that follows it: real processes, simulated machines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from promigence import Promigence
from tests.integration.stacks import DEFINITION, SERVER, Stack, kill, until

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("drain") / ".promigence")
    made.up()
    with made.client() as client:
        client.snapshots.build(DEFINITION)
    yield made
    made.down()
    assert made.processes() == []
    assert made.leavings() == set()


@pytest.fixture
def client(stack: Stack) -> Iterator[Promigence]:
    with stack.client() as made:
        yield made


def test_a_drain_takes_nothing_new_and_ends_what_it_holds(stack: Stack, client: Promigence) -> None:
    held = client.runs.start("task-suite", count=1, spend_cap=1.0, hold_seconds=300)
    (fork,) = client.runs.forks(held["run_id"])
    assert _said(client, fork["fork_id"], "before") == "before\n"
    old = stack.pid("worker")
    draining = subprocess.Popen(
        (*SERVER, "host", "drain", "--wait", "--json", "--dir", str(stack.directory)),
        stdout=subprocess.PIPE,
        text=True,
    )
    until(lambda: stack.pid("worker") != old, "a worker beside it", LIMIT_S)
    assert stack.pid(f"worker-{old}") == old
    new = client.runs.start("task-suite", count=3, spend_cap=1.0, exec={"sh": "sim: exit 0"})
    assert client.runs.wait(new["run_id"], timeout=LIMIT_S)["totals"]["passed"] == 3
    assert _said(client, fork["fork_id"], "after") == "after\n"
    assert stack.status()[f"worker-{old}"] == {
        "name": f"worker-{old}",
        "pid": old,
        "ready": True,
        "detail": "drains",
    }
    assert draining.poll() is None
    assert client.forks.release(fork["fork_id"], passed=True)["outcome"] == "passed"
    told = [
        json.loads(line)["draining"]
        for line in draining.communicate(timeout=LIMIT_S)[0].splitlines()
    ]
    assert draining.returncode == 0
    assert [each["machines"] for each in told[0]] == [1]
    assert told[-1] == []
    until(lambda: f"worker-{old}" not in stack.pids(), "the note that it left")
    assert _logged(stack, "part_left") == [{"part": f"worker-{old}", "code": 0}]


def test_an_upgrade_to_the_release_that_runs_finds_nothing_to_do(stack: Stack) -> None:
    before = stack.pids()
    looked = stack.server("upgrade", "--check", "--json")
    assert looked.returncode == 0, looked.stderr
    told = json.loads(looked.stdout)
    assert (told["done"], told["expand"], told["contract"]) == (True, [], [])
    parts = {part["name"]: part["release"] for part in told["parts"]}
    assert set(parts) == {"api", "worker", "billing", "flower"}
    assert parts["api"] == parts["worker"] == parts["billing"] == told["release"]
    assert stack.server("upgrade").returncode == 0
    assert stack.pids() == before


def test_a_database_that_went_back_is_not_upgraded_and_an_epoch_does_not_begin_by_mistake(
    stack: Stack,
) -> None:
    assert "control_plane_runs" in stack.server("restored", "--force").stderr
    memory = stack.directory / "deployment.control.json"
    seen = json.loads(memory.read_text())
    stopped = stack.pid("billing")
    memory.write_text(json.dumps({**seen, "beat": seen["beat"] + 10**6}))
    try:
        assert "database_went_back" in stack.server("upgrade").stderr
    finally:
        memory.write_text(json.dumps(seen))
    assert stack.pid("billing") == stopped


def test_a_stack_goes_down_with_a_worker_that_drains(stack: Stack, client: Promigence) -> None:
    run = client.runs.start("task-suite", count=2, spend_cap=1.0, exec={"sh": "sim: 300s exit 0"})
    until(lambda: client.runs.get(run["run_id"])["progress"]["running"] == 2, "two running")
    old = stack.pid("worker")
    assert stack.server("host", "drain").returncode == 0
    until(lambda: f"worker-{old}" in stack.pids(), "a worker that drains")
    kill(stack.supervisor_pid())

    stack.down()

    assert stack.processes() == []
    assert stack.leavings() == set()


def _said(client: Promigence, fork_id: str, word: str) -> str:
    return client.forks.exec(fork_id, {"sh": f"sim: print {word} exit 0"})["stdout"]


def _logged(stack: Stack, event: str) -> list[dict[str, object]]:
    lines = (stack.directory / "logs" / "supervisor.log").read_text().splitlines()
    found = [json.loads(line) for line in lines if event in line]
    return [{key: each[key] for key in ("part", "code")} for each in found]
