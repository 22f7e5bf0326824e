"""Stale snapshots, rebuilds and warm targets: the client and the command line, on the wire and on the real API."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from infra.fakes.machines import RESTORE_KEY
from promigence import Conflict, Promigence
from promigence.cli import app
from promigence.cli.exits import ExitCode
from promigence.types import Snapshot
from tests.api.world import Door
from tests.sdk import shapes
from tests.sdk.door import SUITE, client_of
from tests.sdk.wire import FakeTime, Wire, ok, refused
from tests.sdk.wire import client_of as client_on

Cli = Callable[..., Result]
NEWER = replace(RESTORE_KEY, qemu_build="fake-2")
WHY = (
    "no host that is up restores 9.2/pc-q35-9.2/tcg/qemu64; there are: 10.0/pc-q35-10.0/tcg/qemu64"
)


@pytest.fixture
def cli(wire: Wire, time: FakeTime) -> Cli:
    return lambda *args: run(lambda: client_on(wire, time), *args)


def run(connect: Callable[[], Promigence], *args: str) -> Result:
    result = CliRunner().invoke(app, args, obj=connect)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


def stale(name: str = "task-suite", version: int = 1, **more: Any) -> Snapshot:
    told = shapes.snapshot(version)
    changed = {"snapshot": f"{name}@{version}", "name": name, "state": "stale", **more}
    restore = {**told["restore"], "serving": [], "able": [], "why": WHY}
    return {**told, "restore": restore, **changed}  # type: ignore[typeddict-item]


def listed(*rows: Snapshot) -> Any:
    return ok({"snapshots": list(rows), "next_cursor": None})


def test_a_rebuild_is_followed_like_a_build(client: Promigence, wire: Wire) -> None:
    wire.will(ok(shapes.build("queued"), 202), ok(shapes.build("verified")), ok(shapes.snapshot()))
    assert client.snapshots.rebuild("task-suite@3", idempotency_key="k") == shapes.snapshot()
    assert wire.lines[0] == "POST /v1/snapshots/task-suite@3/rebuild"
    assert (wire.body(0), wire.keys()[0]) == ({}, "k")
    wire.will(ok(shapes.build("queued"), 202))
    assert client.snapshots.rebuild("task-suite", spend_cap=2.0, wait=False) == "b-1"
    assert wire.body() == {"spend_cap": 2.0}


def test_what_is_gone_is_in_the_details(client: Promigence, wire: Wire) -> None:
    files = [{"guest_path": "/data", "sha256": "0" * 64}]
    wire.will(refused(409, "files_gone", details={"files": files}))
    with pytest.raises(Conflict) as caught:
        client.snapshots.rebuild("task-suite")
    assert (caught.value.code, caught.value.details) == ("files_gone", {"files": files})


def test_stale_and_warm_on_the_wire(client: Promigence, wire: Wire) -> None:
    wire.will(listed(stale()), ok(shapes.snapshot()), ok(shapes.snapshot()))
    assert client.snapshots.list(stale=True) == [stale()]
    client.snapshots.warm("task-suite", hosts=2)
    assert wire.body() == {"hosts": 2}
    client.snapshots.warm("task-suite@3", hosts=0)
    assert wire.lines == [
        "GET /v1/snapshots?stale=true&limit=100",
        "PUT /v1/snapshots/task-suite/warm",
        "DELETE /v1/snapshots/task-suite@3/warm",
    ]


def test_the_command_shows_what_is_stale_and_why(cli: Cli, wire: Wire) -> None:
    wire.will(listed(stale()), ok(stale()))
    result = cli("snapshots", "list", "--stale")
    assert "task-suite@1" in result.stdout
    assert WHY in result.stdout
    assert f"cannot be restored: {WHY}" in cli("snapshots", "get", "task-suite").stdout


def test_the_command_follows_a_rebuild(cli: Cli, wire: Wire) -> None:
    line = {"n": 1, "step": "setup", "text": "installed again"}
    made = shapes.snapshot(2)
    made["provenance"] = {
        "rebuilt_from": {"snapshot": "task-suite@1", "differs": {"kernel": {}, "tools": {}}}
    }
    wire.will(
        ok(shapes.build("queued"), 202),
        ok(shapes.build("building", line)),  # type: ignore[arg-type]
        ok(shapes.build("verified")),
        ok(made),
    )
    result = cli("snapshots", "rebuild", "task-suite", "--spend-cap", "1")
    assert result.exit_code == 0
    assert "[setup] installed again" in result.stderr
    assert "task-suite@2  verified" in result.stdout
    assert "rebuilt from task-suite@1, which differs in kernel, tools" in result.stdout
    assert wire.body(0) == {"spend_cap": 1.0}


def test_all_that_is_stale_is_rebuilt_whatever_becomes_of_one(cli: Cli, wire: Wire) -> None:
    """The newest versions, by their bare names; one has lost its files and keeps none of the others."""
    wire.will(
        listed(
            stale("alpha", 2),
            stale("alpha", 1, latest=False),
            stale("beta"),
            stale("gamma", state="unreachable"),
        ),
        ok(shapes.build("queued"), 202),
        refused(409, "files_gone"),
        ok(shapes.build("verified")),
        ok(shapes.snapshot(3)),
    )
    result = cli("snapshots", "rebuild", "--all-stale", "--json")
    assert wire.lines[:3] == [
        "GET /v1/snapshots?stale=true&limit=500",
        "POST /v1/snapshots/alpha/rebuild",
        "POST /v1/snapshots/beta/rebuild",
    ]
    assert json.loads(result.stdout) == [
        {
            "rebuilds": "alpha@2",
            "build_id": "b-1",
            "snapshot": "task-suite@3",
            "error": None,
        },
        {
            "rebuilds": "beta@1",
            "build_id": None,
            "snapshot": None,
            "error": {"code": "files_gone", "message": "about files_gone"},
        },
    ]
    assert result.exit_code == ExitCode.ERROR
    assert "alpha@1: not what alpha means; left as it is" in result.stderr
    assert "gamma@1: " in result.stderr


def test_what_needs_a_key_is_rebuilt_before_that_goes(cli: Cli, wire: Wire) -> None:
    older, newer = "9.2 (old)/pc-q35-9.2/tcg/qemu64", "10.0/pc-q35-10.0/tcg/qemu64"
    wire.will(
        listed(
            stale("alpha", 2, state="verified", restore_key=newer),
            stale("alpha", 1, state="verified", restore_key=older, latest=False),
            stale("beta", state="verified", restore_key=older),
        ),
        ok(shapes.build("queued"), 202),
    )
    result = cli("snapshots", "rebuild", "--frozen-under", "9.2 (old)", "--detach", "--json")
    assert result.exit_code == 0
    assert [one["rebuilds"] for one in json.loads(result.stdout)] == ["beta@1"]
    assert wire.lines[1] == "POST /v1/snapshots/beta/rebuild"


def test_a_rebuild_that_is_refused_is_told_in_the_exit_code(cli: Cli, wire: Wire) -> None:
    build = shapes.build("refused")
    build["error"] = {"code": "snapshot_refused", "message": "it did not pass", "details": {}}
    wire.will(listed(stale()), ok(shapes.build("queued"), 202), ok(build))
    result = cli("snapshots", "rebuild", "--all-stale")
    assert result.exit_code == ExitCode.ENVIRONMENT_FAILED
    assert "it did not pass" in result.stdout


def test_without_any_host_nothing_is_rebuilt(cli: Cli, wire: Wire) -> None:
    """Everything looks stale then, and no build would ever begin."""
    restore = {**shapes.snapshot()["restore"], "keys": [], "serving": [], "able": []}
    wire.will(listed(stale(restore=restore)))
    result = cli("snapshots", "rebuild", "--all-stale")
    assert result.exit_code == ExitCode.ERROR
    assert "no host is up" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("rebuild",),
        ("rebuild", "task-suite", "--all-stale"),
        ("rebuild", "--all-stale", "--frozen-under", "9.2"),
        ("rebuild", "--frozen-under", ""),
        ("warm", "task-suite"),
        ("warm", "task-suite", "--hosts", "-1"),
        ("warm", "task-suite", "--hosts", "1001"),
        ("warm", "task-suite", "--hosts", "two"),
    ],
)
def test_bad_usage_asks_the_server_nothing(args: tuple[str, ...], cli: Cli, wire: Wire) -> None:
    assert cli("snapshots", *args).exit_code == ExitCode.BAD_USAGE
    assert wire.asked == []


def test_the_command_says_how_far_a_warm_target_is_met(cli: Cli, wire: Wire) -> None:
    told = shapes.snapshot()
    told["warm"] = {
        "hosts": 3,
        "snapshot": "task-suite@1",
        "follows_name": True,
        "met": False,
        "warm_on": ["h-1"],
        "coming_on": ["h-2"],
        "missing": 1,
        "unfit": [{"host": "h-3", "reason": "draining"}],
    }
    wire.will(ok(told), ok(shapes.snapshot()))
    assert cli("snapshots", "warm", "task-suite", "--hosts", "3").stdout == (
        "task-suite@1 is to be warm on 3 hosts: warm on h-1; coming on h-2; "
        "no host for 1 more; h-3: draining\n"
    )
    ended = cli("snapshots", "warm", "task-suite", "--hosts", "0").stdout
    assert ended == "task-suite is kept warm nowhere\n"


def test_an_upgrade_by_the_commands(door: Door, tmp_path: Path) -> None:
    """Against the real API: the one host comes back with another QEMU, and one command makes all anew."""

    def connect() -> Promigence:
        return client_of(door, door.key)

    connect().snapshots.build(SUITE)
    connect().snapshots.build({**SUITE, "name": "another"})
    assert run(connect, "snapshots", "list", "--stale").stdout == "none\n"
    door.stage.add_host("host0", tmp_path, 100, (NEWER,))
    shown = run(connect, "snapshots", "list", "--stale").stdout
    assert "another@1" in shown
    assert f"restores {RESTORE_KEY}; there are: {NEWER}" in shown
    result = run(connect, "snapshots", "rebuild", "--all-stale")
    assert result.exit_code == 0, result.stderr
    names = {one["snapshot"]: one["state"] for one in connect().snapshots.list()}
    assert names == {
        "another@2": "verified",
        "another@1": "stale",
        "task-suite@2": "verified",
        "task-suite@1": "stale",
    }
    assert run(connect, "snapshots", "rebuild", "--all-stale").stdout == "none\n"
    told = connect().snapshots.warm("task-suite", hosts=2)["warm"]
    assert told is not None
    assert (told["snapshot"], told["missing"]) == ("task-suite@2", 1)
