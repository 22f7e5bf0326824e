from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from promigence import Conflict, DeadlineExceeded, EnvironmentFailure, Promigence, Unavailable
from promigence.types import Exec
from tests.sdk import shapes
from tests.sdk.wire import FakeTime, Wire, cut_off, ok, refused

TRUE: Exec = {"sh": "true"}


def running(exec_id: str = "x-1") -> httpx2.Response:
    return ok({"exec_id": exec_id, "state": "running"}, 202)


def lost() -> httpx2.Response:
    details = {"failure": shapes.failure(), "fork_id": "f-1"}
    return refused(409, "environment_failure", details=details)


def test_a_quick_command_is_one_request(client: Promigence, wire: Wire) -> None:
    wire.will(ok(shapes.exec_result(7, stdout="hello\n")))
    result = client.forks.exec("f-1", {"argv": ["sh", "-c", "exit 7"], "cwd": "/"}, "x-1")
    assert (result["exit_code"], result["stdout"]) == (7, "hello\n")
    assert wire.lines == ["POST /v1/forks/f-1/execs"]
    assert wire.body() == {"argv": ["sh", "-c", "exit 7"], "cwd": "/", "exec_id": "x-1"}


def test_a_long_command_is_followed_by_get(client: Promigence, wire: Wire) -> None:
    wire.will(running(), running(), ok(shapes.exec_result()))
    assert client.forks.exec("f-1", TRUE, "x-1")["exit_code"] == 0
    assert wire.lines == [
        "POST /v1/forks/f-1/execs",
        "GET /v1/forks/f-1/execs/x-1?wait_seconds=25.0",
        "GET /v1/forks/f-1/execs/x-1?wait_seconds=25.0",
    ]


def test_a_command_whose_answer_was_lost_is_asked_for_again_and_not_run_twice(
    client: Promigence, wire: Wire
) -> None:
    wire.will(cut_off(), ok(shapes.exec_result()))
    client.forks.exec("f-1", TRUE)
    assert wire.body(0) == wire.body(1)
    assert len(set(wire.keys())) == 1


def test_each_command_has_an_id_of_its_own(client: Promigence, wire: Wire) -> None:
    wire.will(ok(shapes.exec_result()), ok(shapes.exec_result()))
    client.forks.exec("f-1", TRUE)
    client.forks.exec("f-1", TRUE)
    assert wire.body(0)["exec_id"] != wire.body(1)["exec_id"]


def test_a_commands_own_limit_is_a_result(client: Promigence, wire: Wire) -> None:
    wire.will(ok(shapes.exec_result(None, stdout="so far")))
    result = client.forks.exec("f-1", {"sh": "sleep 9", "timeout_seconds": 1})
    assert (result["timed_out"], result["exit_code"], result["stdout"]) == (True, None, "so far")


@pytest.mark.parametrize("replies", [[lost()], [running(), lost()]], ids=["at once", "later"])
def test_a_lost_machine_is_never_an_exit_code(
    replies: list[httpx2.Response], client: Promigence, wire: Wire
) -> None:
    wire.will(*replies)
    with pytest.raises(EnvironmentFailure) as caught:
        client.forks.exec("f-1", TRUE)
    assert caught.value.fork_id == "f-1"
    assert caught.value.failure == shapes.failure()
    assert caught.value.request_id == "req-9"


def test_out_of_time_a_command_can_be_found_again(time: FakeTime) -> None:
    def never_ends(request: httpx2.Request) -> httpx2.Response:
        time.now += float(request.url.params.get("wait_seconds", 25))
        return running("x-7")

    begun = time.now
    transport = httpx2.MockTransport(never_ends)
    with (
        Promigence("k", "http://p.test", transport=transport, pace=time.pace()) as client,
        pytest.raises(DeadlineExceeded) as caught,
    ):
        client.forks.exec("f-1", TRUE, "x-7", timeout=90)
    assert caught.value.details == {"fork_id": "f-1", "exec_id": "x-7"}
    assert time.now - begun <= 90


def test_a_command_may_take_as_long_as_its_own_limit_and_some_grace(time: FakeTime) -> None:
    def ends_late(request: httpx2.Request) -> httpx2.Response:
        time.now += float(request.url.params.get("wait_seconds", 25))
        return running() if time.now < 1000 + 650 else ok(shapes.exec_result(None))

    transport = httpx2.MockTransport(ends_late)
    with Promigence("k", "http://p.test", transport=transport, pace=time.pace()) as client:
        assert client.forks.exec("f-1", {"sh": "x", "timeout_seconds": 600})["timed_out"]


def test_upload_sends_the_bytes_as_they_are(client: Promigence, wire: Wire, tmp_path: Path) -> None:
    local = tmp_path / "patch"
    local.write_bytes(bytes(range(256)) * 4096)
    wire.will(httpx2.Response(502), ok({"bytes": 1 << 20, "sha256": "0" * 64}))
    assert client.forks.upload("f-1", local, "/workspace/a b", mode=0o755)["bytes"] == 1 << 20
    assert wire.lines == ["PUT /v1/forks/f-1/files?path=%2Fworkspace%2Fa+b&mode=0755"] * 2
    for request in wire.asked:
        assert request.content == local.read_bytes()
        assert request.headers["content-length"] == str(1 << 20)


def test_an_upload_of_nothing_is_an_empty_file(
    client: Promigence, wire: Wire, tmp_path: Path
) -> None:
    local = tmp_path / "empty"
    local.touch()
    wire.will(ok({"bytes": 0, "sha256": "0" * 64}))
    client.forks.upload("f-1", local, "/empty")
    assert wire.asked[0].headers["content-length"] == "0"


def test_a_transfer_may_take_longer_than_any_other_request(time: FakeTime, tmp_path: Path) -> None:
    def slowly(request: httpx2.Request) -> httpx2.Response:
        time.now += 1800
        return httpx2.Response(200, content=b"x")

    transport = httpx2.MockTransport(slowly)
    with Promigence("k", "http://p.test", transport=transport, pace=time.pace()) as client:
        assert client.forks.download("f-1", "/x", tmp_path / "x")["bytes"] == 1


def test_a_transfer_to_a_server_that_is_away_is_not_tried_for_an_hour(
    client: Promigence, wire: Wire, time: FakeTime, tmp_path: Path
) -> None:
    begun = time.now
    wire.will(*(refused(503, "unavailable", retryable=True) for _ in range(40)))
    with pytest.raises(Unavailable):
        client.forks.download("f-1", "/x", tmp_path / "x")
    assert 50 < time.now - begun <= 60
    wire.replies.clear()


def test_a_local_file_that_is_not_there_is_the_callers(client: Promigence, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        client.forks.upload("f-1", tmp_path / "nothing", "/x")


def test_download_writes_the_file(client: Promigence, wire: Wire, tmp_path: Path) -> None:
    wire.will(cut_off(), httpx2.Response(200, content=b"\x00\xff" * 1000))
    target = tmp_path / "out.bin"
    got = client.forks.download("f-1", "/workspace/out", target)
    assert got == {"path": str(target), "bytes": 2000}
    assert target.read_bytes() == b"\x00\xff" * 1000
    assert [path.name for path in tmp_path.iterdir()] == ["out.bin"]


def test_a_download_that_is_refused_leaves_what_was_there(
    client: Promigence, wire: Wire, tmp_path: Path
) -> None:
    target = tmp_path / "out.bin"
    target.write_text("before")
    wire.will(lost())
    with pytest.raises(EnvironmentFailure):
        client.forks.download("f-1", "/workspace/out", target)
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.bin"]


def test_release_says_its_grade(client: Promigence, wire: Wire) -> None:
    released = {
        "fork_id": "f-1",
        "outcome": "passed",
        "reward": 0.5,
        "reward_valid": True,
        "reason": "released_passed",
    }
    wire.will(ok(released))
    assert client.forks.release("f-1", passed=True, reward=0.5) == released
    assert wire.body() == {"passed": True, "reward": 0.5}


def test_another_grade_is_a_conflict(client: Promigence, wire: Wire) -> None:
    wire.will(refused(409, "already_released"))
    with pytest.raises(Conflict) as caught:
        client.forks.release("f-1", passed=False)
    assert caught.value.code == "already_released"
    assert not isinstance(caught.value, EnvironmentFailure)
