"""Looking into one fork: its page, its commands' output, its console; forks that are kept when they fail."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.machine import DeathCause
from app.flow._results import OWN_ROW_BYTES
from tests.api.world import STEP, Door

LONG = "x" * (OWN_ROW_BYTES + 10_000)


def _run(door: Door, text: str = "1s print why error oh exit 7", **more: Any) -> str:
    """A new run of one command in one fork; its fork."""
    command = {"sh": f"sim: {text}", "timeout_seconds": 60, "cwd": "/w", "env": {"A": "b"}}
    step = {**STEP, "count": 1, "exec": command, **more}
    run_id = door.post("/v1/runs", step, 201)["run_id"]
    door.stage.run_for(5)
    return str(door.get(f"/v1/runs/{run_id}/forks")["forks"][0]["fork_id"])


@pytest.fixture
def kept(suite: Door) -> str:
    """The path of a fork that failed and is kept."""
    return f"/v1/forks/{_run(suite, keep_failed=1)}"


def test_a_fork_whole(suite: Door, kept: str) -> None:
    page = suite.get(kept)
    assert (page["state"], page["outcome"], page["exit_code"]) == ("ready", None, 7)
    assert (page["kept"]["outcome"], page["kept"]["reason"]) == ("failed", "command_failed")
    (machine,) = page["machines"]
    assert (machine["host"], machine["ended_at"], machine["failure"]) == ("host0", None, None)
    assert 0 < machine["lease_left_seconds"] < machine["lease_seconds"]
    assert machine["opened_at"] <= machine["ready_at"] < page["kept"]["until"]
    (command,) = page["commands"]
    assert (command["purpose"], command["state"], command["exit_code"]) == ("task", "ended", 7)
    assert command["seconds"] == 1.0
    assert command["command"] == {
        "sh": "sim: 1s print why error oh exit 7",
        "cwd": "/w",
        "env": {"A": "b"},
        "timeout_seconds": 60.0,
    }


def test_what_a_caller_named_is_listed_by_that_name(suite: Door, kept: str) -> None:
    suite.post(f"{kept}/execs", {"sh": "sim: print hi", "exec_id": "mine"})
    commands = suite.get(kept)["commands"]
    assert [(one["exec_id"], one["purpose"]) for one in commands[1:]] == [("mine", "held")]
    assert suite.client.get(f"{kept}/logs", params={"exec_id": "mine"}).text == "hi\n"


def test_an_env_of_a_group_and_the_egress_of_a_run_are_told(suite: Door) -> None:
    group = {"snapshot": "task-suite", "count": 1, "key": "p", "env": {"SEED": "1"}}
    step = {name: value for name, value in STEP.items() if name not in ("snapshot", "count")}
    body = {**step, "groups": [group], "egress": ["policy.internal:8000"]}
    run_id = suite.post("/v1/runs", body, 201)["run_id"]
    fork = suite.get(f"/v1/runs/{run_id}/forks")["forks"][0]
    page = suite.get(f"/v1/forks/{fork['fork_id']}")
    assert (page["key"], page["env"]) == ("p", {"SEED": "1"})
    assert (page["egress"], page["machines"]) == (["policy.internal:8000"], [])


def test_small_output_comes_from_the_row(suite: Door, kept: str) -> None:
    answer = suite.client.get(f"{kept}/logs")
    assert (answer.text, answer.headers["Promigence-State"]) == ("why\n", "ended")
    assert answer.headers["Promigence-Purpose"] == "task"
    assert suite.client.get(f"{kept}/logs", params={"stream": "stderr"}).text == "oh\n"
    assert suite.client.get(f"{kept}/logs", params={"start": 2}).text == "y\n"
    assert suite.client.get(f"{kept}/logs", params={"exec_id": "task"}).text == "why\n"


def test_long_output_is_kept_whole_after_the_end(suite: Door) -> None:
    fork = f"/v1/forks/{_run(suite, f'1s print {LONG}')}"
    page = suite.get(fork)
    assert (page["outcome"], page["truncated"], len(page["stdout_tail"])) == ("passed", True, 4096)
    answer = suite.client.get(f"{fork}/logs")
    assert answer.text == f"{LONG}\n"
    assert answer.headers["Promigence-Truncated"] == "false"
    assert answer.headers["Promigence-Next"] == str(len(LONG) + 1)
    assert suite.client.get(f"{fork}/logs", params={"start": len(LONG) - 1}).text == "x\n"
    assert suite.client.get(f"{fork}/logs", params={"start": 2**30}).text == ""


def test_what_failed_in_its_own_test_can_be_read(suite: Door) -> None:
    suite.stage.world.spoil("test_", f"1s print {LONG} exit 1")
    fork = f"/v1/forks/{_run(suite, verify_each=True, environment_retries=0)}"
    page = suite.get(fork)
    assert (page["outcome"], page["commands"][0]["exit_code"]) == ("env_failed", 1)
    assert suite.client.get(f"{fork}/logs", params={"exec_id": "test"}).text == f"{LONG}\n"


def test_a_running_command_shows_what_it_has_printed(suite: Door) -> None:
    fork = f"/v1/forks/{_run(suite, '50s print working')}"
    answer = suite.client.get(f"{fork}/logs")
    assert (answer.text, answer.headers["Promigence-State"]) == ("working\n", "running")
    then = answer.headers["Promigence-Next"]
    assert then == "8"
    suite.stage.run_for(60)
    last = suite.client.get(f"{fork}/logs", params={"start": then})
    assert (last.text, last.headers["Promigence-State"]) == ("", "ended")


def test_a_character_is_never_cut_in_two(suite: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.flow.exec.LOOK_BYTES", 4)
    fork = f"/v1/forks/{_run(suite, '50s print abcé')}"
    first = suite.client.get(f"{fork}/logs")
    assert (first.text, first.headers["Promigence-Next"]) == ("abc", "3")
    rest = suite.client.get(f"{fork}/logs", params={"start": 3})
    assert rest.text == "é\n"


def test_what_went_with_its_machine_is_said_to_be_lost(suite: Door) -> None:
    fork = f"/v1/forks/{_run(suite, '2s print gone crash')}"
    error = suite.refused("GET", f"{fork}/logs", 409, "output_lost")
    assert error["details"]["failure"]["kind"] == "guest_lost"


def test_a_fork_that_ran_nothing_has_no_output(suite: Door) -> None:
    fork = f"/v1/forks/{suite.held_fork()}"
    suite.refused("GET", f"{fork}/logs", 404, "no_commands")
    suite.refused("GET", f"{fork}/logs", 404, "unknown_exec", params={"exec_id": "none"})


def test_a_console_while_its_machine_lives_and_afterwards(suite: Door, kept: str) -> None:
    machine = suite.get(kept)["machines"][0]["attempt_id"]
    text = f"fake console of {machine}\n"
    seen = suite.get(f"{kept}/console")
    assert (seen["live"], seen["attempt_id"], seen["text"]) == (True, machine, text)
    commands = [each["purpose"] for each in suite.get(kept)["commands"]]
    assert commands == ["task"]  # a look is no command
    suite.post(f"{kept}/release", {})
    suite.stage.run_for(3)
    seen = suite.get(f"{kept}/console")
    assert (seen["live"], seen["attempt_id"], seen["text"]) == (False, machine, text)


def test_a_look_changes_nothing_of_a_running_task(suite: Door) -> None:
    fork_id = _run(suite, "50s print working")
    for _ in range(20):
        suite.get(f"/v1/forks/{fork_id}/console")
    row = suite.stage.ports.runs.fork("default", fork_id)
    assert row.state.value == "running"
    suite.stage.world.die(row.attempt_id or "", DeathCause.SIGNAL, 9)
    suite.stage.run_for(3)
    assert suite.get(f"/v1/forks/{fork_id}")["outcome"] == "env_failed"


def test_a_host_that_does_not_answer_is_said_so(
    suite: Door, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.routes.fork_looks.LOOK_WAIT_S", 0.01)
    suite.wakes.still = True
    suite.refused("GET", f"{kept}/console", 503, "unavailable")


def test_another_projects_fork_is_not_there(suite: Door, kept: str) -> None:
    for path in (kept, f"{kept}/logs", f"{kept}/console"):
        suite.refused("GET", path, 404, "unknown_fork", headers=suite.as_stranger())


def test_a_kept_fork_is_released_without_a_grade(suite: Door, kept: str) -> None:
    suite.refused("POST", f"{kept}/release", 409, "verdict_stands", json={"passed": True})
    told = suite.post(f"{kept}/release", {})
    assert (told["outcome"], told["reward"]) == ("failed", 0.0)
    assert (told["reason"], told["reward_valid"]) == ("command_failed", True)


def test_how_many_may_be_kept_is_checked(suite: Door) -> None:
    for many in (-1, 101, 1.5, "2"):
        suite.refused("POST", "/v1/quotes", 400, "bad_request", json={**STEP, "keep_failed": many})
    suite.post("/v1/quotes", {**STEP, "keep_failed": 2})
