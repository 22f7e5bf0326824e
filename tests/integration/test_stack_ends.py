"""What `down` leaves behind, after whatever happened before it: nothing that runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from tests.integration.stacks import DEFINITION, SERVER, Stack, kill, until


def test_twice_up_and_twice_down_leave_nothing_and_disturb_nobody(
    own_stack: Stack, stack: Stack
) -> None:
    others = stack.pids()

    own_stack.up()

    before = own_stack.pids()
    secret = own_stack.environment()["PROMIGENCE_API_KEY"]
    assert (own_stack.directory / "env").stat().st_mode & 0o777 == 0o600

    own_stack.up()

    assert own_stack.pids() == before
    assert own_stack.environment()["PROMIGENCE_API_KEY"] == secret
    own_stack.down()
    assert own_stack.processes() == []
    assert own_stack.leavings() == set()
    own_stack.down()
    assert stack.pids() == others
    logs = "".join(path.read_text() for path in (own_stack.directory / "logs").iterdir())
    assert secret not in logs


def test_after_the_worst_order_of_deaths_down_leaves_nothing_and_the_run_is_decided(
    own_stack: Stack,
) -> None:
    own_stack.up()
    with own_stack.client() as client:
        client.snapshots.build(DEFINITION)
        run = client.runs.start(
            "task-suite", count=2, spend_cap=1.0, exec={"sh": "sim: 300s exit 0"}
        )
        until(lambda: client.runs.get(run["run_id"])["progress"]["running"] == 2, "running forks")
    killed = {name: own_stack.pid(name) for name in ("api", "billing", "flower")}
    for pid in killed.values():
        kill(pid)
    # A part that is gone is not written down before it is started again.
    until(
        lambda: all(own_stack.pids().get(name, pid) != pid for name, pid in killed.items()),
        "new parts",
    )
    # The parent first, so that nobody starts the others again; then some of them.
    kill(own_stack.supervisor_pid())
    kill(own_stack.pid("redis"))
    kill(own_stack.pid("worker"))
    os.kill(own_stack.pid("billing"), signal.SIGSTOP)
    assert own_stack.processes() != []
    told = own_stack.server("doctor", "--json")
    assert told.returncode == 1
    found = {each["kind"] for each in json.loads(told.stdout)["findings"]}
    assert found == {"part_not_ready", "stack_process"}

    own_stack.down()

    assert own_stack.processes() == []
    assert own_stack.leavings() == set()
    own_stack.up()
    with own_stack.client() as client:
        report = client.runs.wait(run["run_id"], timeout=20)
    assert report["totals"]["env_failed"] == 2
    assert {fork["failure"]["kind"] for fork in report["forks"] if fork["failure"]} == {"host_lost"}


def test_ctrl_c_while_it_comes_up_stops_what_was_started(own_stack: Stack) -> None:
    starting = subprocess.Popen(
        (*SERVER, "up", "--machines", "fake", "--dir", str(own_stack.directory)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until((own_stack.directory / "processes.json").exists, "processes that were started")

    starting.send_signal(signal.SIGINT)

    assert starting.wait(timeout=60) == 130
    assert own_stack.processes() == []
    assert own_stack.leavings() == set()


def test_an_unusable_setting_is_named_and_nothing_is_started(
    own_stack: Stack, tmp_path: Path
) -> None:
    done = own_stack.server("up", "--machines", "paper")

    assert done.returncode == 1
    assert "machines" in done.stderr
    assert own_stack.processes() == []
