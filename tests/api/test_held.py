"""Held forks: commands by id, files both ways, the grade at the end, and a machine that is lost."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from app.domain.machine import DeathCause
from app.domain.run import MAX_PARALLEL_EXECS
from tests.api.world import HOLD, STEP, Door, raw


@pytest.fixture
def fork(suite: Door) -> str:
    """The path of a held fork that is ready."""
    return f"/v1/forks/{suite.held_fork()}"


def _machine(door: Door, fork: str) -> str:
    """The name of a fork's machine."""
    row = door.stage.ports.runs.fork("default", fork.rsplit("/", 1)[1])
    assert row.attempt_id is not None
    return row.attempt_id


def _sim(text: str, **more: Any) -> dict[str, Any]:
    return {"sh": f"sim: {text}", "timeout_seconds": 60, **more}


def test_a_fork_as_it_stands(suite: Door, fork: str) -> None:
    seen = suite.get(fork)
    assert (seen["state"], seen["outcome"], seen["reason"]) == ("ready", None, None)
    assert (seen["index"], seen["snapshot"], seen["host"]) == (0, "task-suite@1", "host0")


def test_a_command_and_its_result(suite: Door, fork: str) -> None:
    command = _sim("0.5s print out error err exit 3")
    result = suite.post(f"{fork}/execs", command)
    exec_id = result.pop("exec_id")
    assert result == {
        "exit_code": 3,
        "timed_out": False,
        "signal": None,
        "stdout": "out\n",
        "stderr": "err\n",
        "truncated": False,
        "seconds": 0.5,
    }
    assert suite.get(f"{fork}/execs/{exec_id}") == {"exec_id": exec_id, **result}


def test_a_time_limit_is_a_result(suite: Door, fork: str) -> None:
    result = suite.post(f"{fork}/execs", {**_sim("9s print kept"), "timeout_seconds": 2})
    assert (result["timed_out"], result["exit_code"]) == (True, None)
    assert result["stdout"] == "kept\n"


def test_a_long_command_is_followed_by_its_id(
    suite: Door, fork: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.routes.execs.MAX_WAIT_S", 0.01)
    suite.wakes.still = True
    command = _sim("30s exit 0", exec_id="mine")
    pending = suite.client.post(f"{fork}/execs", json=command)
    assert pending.status_code == 202
    assert pending.json() == {"exec_id": "mine", "state": "queued"}
    suite.stage.run_for(2)
    running = suite.client.get(f"{fork}/execs/mine")
    assert (running.status_code, running.json()["state"]) == (202, "running")
    suite.wakes.still = False
    assert suite.get(f"{fork}/execs/mine", wait_seconds=25)["exit_code"] == 0


def test_an_id_finds_its_command_again(suite: Door, fork: str) -> None:
    command = _sim("1s print once", exec_id="mine")
    first = suite.post(f"{fork}/execs", command)
    assert suite.post(f"{fork}/execs", command) == first
    assert sum(suite.stage.world.starts.values()) == 1 + _own_tests(suite)
    other = _sim("2s", exec_id="mine")
    error = suite.refused("POST", f"{fork}/execs", 409, "exec_id_taken", json=other)
    assert "mine" in error["message"]


def _own_tests(door: Door) -> int:
    """Commands that ran while the snapshot was built."""
    return sum(
        count for name, count in door.stage.world.starts.items() if not name.startswith("exec_")
    )


def test_ids_are_a_forks_own(suite: Door, fork: str) -> None:
    sibling = f"/v1/forks/{suite.held_fork()}"
    first = suite.post(f"{fork}/execs", _sim("1s print one", exec_id="step-1"))
    second = suite.post(f"{sibling}/execs", _sim("1s print two", exec_id="step-1"))
    assert (first["stdout"], second["stdout"]) == ("one\n", "two\n")
    assert suite.get(f"{fork}/execs/step-1")["stdout"] == "one\n"
    suite.refused("GET", f"{sibling}/execs/step-2", 404, "unknown_exec")


def test_a_repeated_command_without_an_id_is_found_by_its_key(suite: Door, fork: str) -> None:
    first = suite.post(f"{fork}/execs", _sim("1s"), key="once")
    assert suite.post(f"{fork}/execs", _sim("1s"), key="once") == first
    headers = {"Idempotency-Key": "once"}
    suite.refused(
        "POST", f"{fork}/execs", 409, "idempotency_mismatch", json=_sim("2s"), headers=headers
    )
    assert suite.post(f"{fork}/execs", _sim("1s"))["exec_id"] != first["exec_id"]


def test_too_many_at_once_may_be_asked_again(
    suite: Door, fork: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.routes.execs.MAX_WAIT_S", 0.01)
    suite.wakes.still = True
    for _ in range(MAX_PARALLEL_EXECS):
        suite.post(f"{fork}/execs", _sim("30s"), 202)
    error = suite.refused("POST", f"{fork}/execs", 409, "too_many_execs", json=_sim("1s"))
    assert error["retryable"] is True


def test_a_fork_that_is_not_ready_yet_may_be_asked_again(suite: Door) -> None:
    run_id = suite.post("/v1/runs", HOLD, 201)["run_id"]
    fork = suite.get(f"/v1/runs/{run_id}/forks")["forks"][0]
    path = f"/v1/forks/{fork['fork_id']}/execs"
    error = suite.refused("POST", path, 409, "fork_not_ready", json={"sh": "true"})
    assert error["retryable"] is True


def test_a_fork_with_a_command_of_its_own_takes_no_other(suite: Door) -> None:
    run_id = suite.post("/v1/runs", STEP, 201)["run_id"]
    fork = suite.get(f"/v1/runs/{run_id}/forks")["forks"][0]
    path = f"/v1/forks/{fork['fork_id']}"
    suite.refused("POST", f"{path}/execs", 409, "fork_not_held", json={"sh": "true"})
    suite.refused("POST", f"{path}/release", 409, "fork_not_held", json={})


def test_a_lost_machine_is_an_environment_failure_again_and_again(suite: Door, fork: str) -> None:
    crash = _sim("1s crash")
    error = suite.refused("POST", f"{fork}/execs", 409, "environment_failure", json=crash)
    assert error["retryable"] is False
    assert error["details"]["fork_id"] == fork.rsplit("/", 1)[1]
    failure = error["details"]["failure"]
    assert (failure["kind"], failure["task_may_have_caused"]) == ("guest_lost", True)
    assert failure["evidence"]
    later = suite.refused("POST", f"{fork}/execs", 409, "environment_failure", json=_sim("1s"))
    assert later["details"] == error["details"]
    suite.refused("GET", f"{fork}/files", 409, "environment_failure", params={"path": "/etc/a"})
    suite.refused("POST", f"{fork}/release", 409, "environment_failure", json={"passed": True})
    assert suite.get(fork)["outcome"] == "env_failed"


def test_a_machine_that_is_killed_under_a_command(suite: Door, fork: str) -> None:
    suite.stage.world.die(_machine(suite, fork), DeathCause.SIGNAL, 9)
    error = suite.refused("POST", f"{fork}/execs", 409, "environment_failure", json=_sim("5s"))
    assert error["details"]["failure"]["kind"] == "guest_lost"


def test_a_command_of_a_fork_that_is_stopped_says_why(
    suite: Door, fork: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.routes.execs.MAX_WAIT_S", 0.01)
    suite.wakes.still = True
    suite.post(f"{fork}/execs", _sim("30s", exec_id="mine"), 202)
    run_id = suite.get(fork)["run_id"]
    suite.post(f"/v1/runs/{run_id}/cancel", None)
    suite.stage.run_for(2)
    for method, path, body in (("GET", "/mine", None), ("POST", "", _sim("1s"))):
        error = suite.refused(method, f"{fork}/execs{path}", 409, "fork_ended", json=body)
        assert error["details"] == {
            "fork_id": fork.rsplit("/", 1)[1],
            "outcome": "cancelled",
            "reason": "cancelled",
        }


@pytest.mark.parametrize(
    ("grade", "outcome", "reward"),
    [
        ({"passed": True}, "passed", 1.0),
        ({"passed": False}, "failed", 0.0),
        ({"passed": None}, "released", None),
        ({}, "released", None),
        ({"passed": True, "reward": 0.25}, "passed", 0.25),
        ({"reward": -1}, "released", -1.0),
    ],
)
def test_a_release_and_its_grade(
    suite: Door, fork: str, grade: dict[str, Any], outcome: str, reward: float | None
) -> None:
    released = suite.post(f"{fork}/release", grade)
    assert released["outcome"] == outcome
    assert released["reward"] == reward
    assert released["reward_valid"] is (reward is not None)
    assert suite.post(f"{fork}/release", grade) == released
    suite.stage.run_for(2)
    assert suite.post(f"{fork}/release", grade) == released
    report = suite.get(f"/v1/runs/{suite.get(fork)['run_id']}/report")
    ended = report["forks"][0]
    assert (ended["outcome"], ended["reward"]) == (outcome, reward)
    other = {"passed": True, "reward": 0.5}
    suite.refused("POST", f"{fork}/release", 409, "already_released", json=other)


def test_a_file_goes_in_and_comes_out(suite: Door, fork: str) -> None:
    content = bytes(range(256)) * 10_000
    there = {"path": "/workspace/data.bin", "mode": "0755"}
    put = suite.client.put(f"{fork}/files", params=there, content=content)
    assert put.status_code == 200, put.text
    assert put.json() == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    got = suite.client.get(f"{fork}/files", params={"path": "/workspace/data.bin"})
    assert got.content == content
    assert got.headers["content-length"] == str(len(content))
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["x-content-type-options"] == "nosniff"


def test_an_empty_file_is_a_file(suite: Door, fork: str) -> None:
    assert suite.client.put(f"{fork}/files", params={"path": "/e"}).json()["bytes"] == 0
    assert suite.client.get(f"{fork}/files", params={"path": "/e"}).content == b""


@pytest.mark.parametrize("path", ["", "relative", "/a/../b", "/a\0b", "/" + "x" * 4096])
def test_a_path_in_a_guest_is_absolute_and_plain(still: Door, path: str) -> None:
    for method in ("GET", "PUT"):
        still.refused(
            method,
            f"/v1/forks/{still.made['fork_id']}/files",
            400,
            "bad_path",
            params={"path": path},
        )


@pytest.mark.parametrize("mode", ["", "9", "0888", "rwx", "00644", "-644"])
def test_a_mode_is_octal(still: Door, mode: str) -> None:
    query = {"path": "/a", "mode": mode}
    still.refused(
        "PUT", f"/v1/forks/{still.made['fork_id']}/files", 400, "bad_request", params=query
    )


def test_what_a_guest_refuses_is_told_by_its_status(still: Door) -> None:
    still.refused(
        "GET",
        f"/v1/forks/{still.made['fork_id']}/files",
        404,
        "not_found",
        params={"path": "/nothing"},
    )
    still.refused("GET", f"/v1/forks/{still.made['fork_id']}/files", 400, "bad_request")


def test_an_upload_to_no_fork_is_refused_before_its_bytes_are_taken(suite: Door) -> None:
    taken = []

    def chunks() -> Any:
        taken.append("a chunk")
        yield b"x"

    seen = raw(suite, "PUT", "/v1/forks/fork_none/files", query="path=/a", chunks=chunks())
    assert (seen.status, seen.error["code"]) == (404, "unknown_fork")
    assert taken == []
