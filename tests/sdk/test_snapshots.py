from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import httpx2
import pytest

from promigence import (
    BadDefinition,
    BuildFailed,
    Conflict,
    NotFound,
    Promigence,
    SnapshotRefused,
    WaitTimeout,
)
from promigence.types import Build, BuildLine, Definition
from tests.sdk import shapes
from tests.sdk.wire import FakeTime, Wire, ok, refused

PLAIN: Definition = {"name": "task-suite", "image": "debian-12", "setup": ["make"]}


def line(n: int) -> BuildLine:
    return {"n": n, "step": "setup", "text": f"line {n}"}


def ended(state: str, error: Mapping[str, object] | None) -> Build:
    build = shapes.build(state)
    build["error"] = None if error is None else dict(error)
    return build


@pytest.fixture
def with_files(tmp_path: Path) -> Path:
    """A definition beside a directory and a file that it uploads."""
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "main.py").write_text("print(1)\n")
    (tmp_path / "conf").write_text("a=1\n")
    path = tmp_path / "task.toml"
    path.write_text(
        'name = "task-suite"\nimage = "debian-12"\n'
        '[files]\n"./repo" = "/workspace/repo"\n"conf" = "/etc/task/task.conf"\n'
    )
    return path


def test_a_build_is_followed_to_its_snapshot(client: Promigence, wire: Wire) -> None:
    wire.will(
        ok(shapes.build("queued"), 202),
        ok(shapes.build("building", line(1), line(2))),
        ok(shapes.build("verifying", line(3))),
        ok(shapes.build("verified")),
        ok(shapes.snapshot()),
    )
    told: list[tuple[str, list[int]]] = []
    snapshot = client.snapshots.build(
        PLAIN,
        on_progress=lambda build: told.append((build["state"], [one["n"] for one in build["log"]])),
    )
    assert snapshot == shapes.snapshot()
    assert told == [("building", [1, 2]), ("verifying", [3]), ("verified", [])]
    assert wire.body(0) == {"definition": PLAIN, "files": []}
    assert wire.lines == [
        "POST /v1/snapshots",
        "GET /v1/builds/b-1?after=0&wait_seconds=5.0",
        "GET /v1/builds/b-1?after=2&wait_seconds=5.0",
        "GET /v1/builds/b-1?after=3&wait_seconds=5.0",
        "GET /v1/snapshots/task-suite@1",
    ]


def test_a_line_that_is_told_twice_is_passed_on_once(client: Promigence, wire: Wire) -> None:
    wire.will(
        ok(shapes.build("building", line(1))),
        ok(shapes.build("building", line(1), line(2))),
        ok(shapes.build("verified", line(2))),
        ok(shapes.snapshot()),
    )
    seen: list[int] = []
    client.snapshots.wait("b-1", on_progress=lambda b: seen.extend(one["n"] for one in b["log"]))
    assert seen == [1, 2]


def test_without_waiting_a_build_is_an_id(client: Promigence, wire: Wire) -> None:
    wire.will(ok(shapes.build("queued"), 202))
    assert client.snapshots.build(PLAIN, wait=False) == "b-1"


def test_a_refused_environment_says_which_check_and_how_to_run_it(
    client: Promigence, wire: Wire
) -> None:
    details = {"check": "test", "output": "1 failed", "reproduce": "promigence ..."}
    error = {"code": "snapshot_refused", "message": "test failed", "details": details}
    wire.will(ok(shapes.build(), 202), ok(ended("refused", error)))
    with pytest.raises(SnapshotRefused) as caught:
        client.snapshots.build(PLAIN)
    assert caught.value.details == {**details, "build_id": "b-1", "state": "refused"}
    assert (caught.value.code, caught.value.message) == ("snapshot_refused", "test failed")


@pytest.mark.parametrize(
    ("state", "error", "code"),
    [
        ("failed", {"code": "setup_failed", "message": "make: exit 2"}, "setup_failed"),
        ("cancelled", None, "build_failed"),
    ],
)
def test_a_build_with_nothing_to_check_failed_and_was_not_refused(
    state: str, error: dict[str, object] | None, code: str, client: Promigence, wire: Wire
) -> None:
    wire.will(ok(ended(state, error)))
    with pytest.raises(BuildFailed) as caught:
        client.snapshots.wait("b-1")
    assert type(caught.value) is BuildFailed
    assert caught.value.code == code
    assert caught.value.details == {"build_id": "b-1", "state": state}


def test_a_wait_that_is_over_leaves_the_build_going(time: FakeTime) -> None:
    def never_ends(request: httpx2.Request) -> httpx2.Response:
        time.now += float(request.url.params["wait_seconds"])
        return ok(shapes.build())

    transport = httpx2.MockTransport(never_ends)
    with (
        Promigence("k", "http://p.test", transport=transport, pace=time.pace()) as client,
        pytest.raises(WaitTimeout) as caught,
    ):
        client.snapshots.wait("b-1", timeout=40)
    assert caught.value.details == {"build_id": "b-1"}


def test_files_are_uploaded_once_by_their_content(
    client: Promigence, wire: Wire, with_files: Path
) -> None:
    wire.will(
        httpx2.Response(404),
        ok({"sha256": "0" * 64, "bytes": 1}, 201),
        httpx2.Response(200),
        ok(shapes.build(), 202),
    )
    client.snapshots.build(with_files, wait=False)
    head, put, second_head, post = wire.asked
    body = wire.body()
    assert body["definition"] == {"name": "task-suite", "image": "debian-12"}
    repo, conf = body["files"]
    assert (repo["guest_path"], conf["guest_path"]) == ("/workspace/repo", "/etc/task")
    assert head.method == "HEAD"
    assert head.url.path == put.url.path == f"/v1/files/{repo['sha256']}"
    assert second_head.url.path == f"/v1/files/{conf['sha256']}"
    assert post.url.path == "/v1/snapshots"
    assert hashlib.sha256(put.content).hexdigest() == repo["sha256"]
    with tarfile.open(fileobj=io.BytesIO(put.content)) as tar:
        assert tar.getnames() == ["main.py"]


def test_a_path_in_a_dict_is_relative_to_where_one_is(
    client: Promigence, wire: Wire, with_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(with_files.parent)
    wire.will(httpx2.Response(200), ok(shapes.build(), 202))
    client.snapshots.build({**PLAIN, "files": {"repo": "/workspace/repo"}}, wait=False)
    assert wire.body()["files"][0]["guest_path"] == "/workspace/repo"


def test_nothing_is_sent_for_a_definition_that_is_wrong(
    client: Promigence, wire: Wire, with_files: Path
) -> None:
    (with_files.parent / "conf").unlink()
    with pytest.raises(BadDefinition, match=r"there is no .*conf"):
        client.snapshots.build(with_files)
    with pytest.raises(BadDefinition, match="did you mean 'setup'"):
        client.snapshots.build({**PLAIN, "setpu": []})  # type: ignore[call-overload]
    assert wire.asked == []


def test_get_list_delete(client: Promigence, wire: Wire) -> None:
    wire.will(
        ok(shapes.snapshot(3)),
        ok({"snapshots": [shapes.snapshot()], "next_cursor": None}),
        ok({"deleted": ["task-suite@3"]}),
        refused(409, "snapshot_in_use", details={"runs": ["r-1"]}),
    )
    assert client.snapshots.get("task-suite@3")["version"] == 3
    assert [one["name"] for one in client.snapshots.list()] == ["task-suite"]
    assert client.snapshots.delete("task-suite@3") == {"deleted": ["task-suite@3"]}
    with pytest.raises(Conflict) as caught:
        client.snapshots.delete("task-suite")
    assert caught.value.details == {"runs": ["r-1"]}
    assert wire.lines == [
        "GET /v1/snapshots/task-suite@3",
        "GET /v1/snapshots?limit=100",
        "DELETE /v1/snapshots/task-suite@3",
        "DELETE /v1/snapshots/task-suite",
    ]


def test_hosts(client: Promigence, wire: Wire) -> None:
    wire.will(ok({"hosts": [shapes.host()], "next_cursor": None}))
    assert client.hosts.list() == [shapes.host()]


def test_a_name_with_slashes_stays_one_part_of_the_path(client: Promigence, wire: Wire) -> None:
    wire.will(refused(404, "unknown_snapshot"))
    with pytest.raises(NotFound):
        client.snapshots.get("../../v1/keys?all#x")
    assert wire.lines == ["GET /v1/snapshots/..%2F..%2Fv1%2Fkeys%3Fall%23x"]
