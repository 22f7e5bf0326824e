"""Amounts that will not do, as a trainer's code and a shell meet them: the server and this client are the real ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from promigence import BadRequest, Conflict, NotFound, Promigence
from promigence.cli import app
from promigence.cli.exits import ExitCode
from tests.api.world import Door, open_door
from tests.flow.stage import Stage, definition

STEP: dict[str, Any] = {"count": 2, "exec": {"sh": "sim: 1s", "timeout_seconds": 60}}
SHELL = ("task-suite", "--count", "2", "--sh", "sim: 1s")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """One deployment for all: nothing here leaves anything in it."""
    path = tmp_path_factory.mktemp("money")
    stage = Stage(path)
    door = open_door(stage, path)
    with door.client:
        stage.build(definition())
        yield door
        assert door.get("/v1/runs")["runs"] == []
    stage.stores.close()


@pytest.fixture
def client(door: Door) -> Promigence:
    return _client(door, door.key)


def _client(door: Door, key: str) -> Promigence:
    transport: httpx2.BaseTransport = door.client._transport
    return Promigence(key, "http://testserver", transport=transport)


def _shell(door: Door, *words: str) -> Result:
    result = CliRunner().invoke(app, words, obj=lambda: _client(door, door.key))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


@pytest.mark.parametrize(
    "cap",
    [float("nan"), float("inf"), 10**5000, Decimal("0.5"), object(), b"1"],
    ids=["nan", "inf", "more digits than are written", "decimal", "object", "bytes"],
)
def test_what_cannot_be_sent_is_refused_here_by_its_name(client: Promigence, cap: Any) -> None:
    for call in (client.runs.quote, client.runs.start):
        with pytest.raises(BadRequest, match=r"^spend_cap cannot be sent") as refused:
            call("task-suite", spend_cap=cap, **STEP)
        assert refused.value.status is None


@pytest.mark.parametrize(
    "cap",
    [0, -1, -0.5, 1e-9, 1e12, 10**400, "abc", "1.0", "\uff11", True, None, [], {}],
    ids=range(13),
)
def test_what_is_no_amount_is_refused_by_the_server_by_its_name(
    client: Promigence, cap: Any
) -> None:
    for call in (client.runs.quote, client.runs.start):
        with pytest.raises(BadRequest, match=r"^spend_cap: ") as refused:
            call("task-suite", spend_cap=cap, **STEP)
        assert (refused.value.code, refused.value.status) == ("bad_request", 400)
        assert refused.value.details["fields"][0]["field"] == "spend_cap"
        assert not refused.value.retryable


def test_a_cap_that_is_too_small_says_which_one_works(client: Promigence) -> None:
    with pytest.raises(BadRequest) as refused:
        client.runs.quote("task-suite", spend_cap=0.000001, **STEP)
    assert refused.value.code == "cap_too_small"
    smallest = refused.value.details["smallest_cap_usd"]
    assert client.runs.quote("task-suite", spend_cap=smallest, **STEP)["spend_cap_usd"] == smallest


def test_a_quote_that_will_not_do_is_told_by_what_is_wrong_with_it(
    door: Door, client: Promigence
) -> None:
    quote_id = client.runs.quote("task-suite", spend_cap=1.0, **STEP)["quote_id"]
    with pytest.raises(Conflict) as other:
        client.runs.start("task-suite", spend_cap=2.0, quote_id=quote_id, **STEP)
    assert other.value.code == "quote_mismatch"
    with pytest.raises(NotFound) as unknown:
        client.runs.start("task-suite", spend_cap=1.0, quote_id="quote_none", **STEP)
    assert unknown.value.code == "unknown_quote"
    door.stage.clock.advance(901)
    with pytest.raises(Conflict) as late:
        client.runs.start("task-suite", spend_cap=1.0, quote_id=quote_id, **STEP)
    assert late.value.code == "quote_expired"
    words = (*SHELL, "--timeout", "60", "--spend-cap", "1", "--quote-id", quote_id)
    assert _shell(door, "runs", "start", *words).exit_code == ExitCode.ERROR


@pytest.mark.parametrize("command", ["quote", "start"])
@pytest.mark.parametrize(
    "cap",
    ["0", "-1", "0.0000001", "1" * 20, "nan", "inf", "1e400", "1e3", "abc", "1_000", "\uff11", ""],
)
def test_a_shell_is_told_bad_usage(door: Door, command: str, cap: str) -> None:
    result = _shell(door, "runs", command, *SHELL, "--spend-cap", cap)
    assert result.exit_code == ExitCode.BAD_USAGE
    assert result.stdout == ""
    assert "spend" in result.stderr


def test_a_shell_reads_an_amount_as_it_stands(door: Door) -> None:
    result = _shell(door, "runs", "quote", *SHELL, "--spend-cap", "0.250", "--json")
    assert json.loads(result.stdout)["spend_cap_usd"] == 0.25


def test_a_shell_without_a_cap_is_told_so(door: Door) -> None:
    result = _shell(door, "runs", "quote", *SHELL)
    assert (result.exit_code, result.stdout) == (ExitCode.BAD_USAGE, "")
    assert "spend_cap: Field required" in result.stderr


@pytest.mark.parametrize("cap", ["0", "-0.5", "nan", "inf", "1e400", '"0.5"', "true", "[]"])
def test_a_definitions_cap_is_held_to_the_same(door: Door, tmp_path: Path, cap: str) -> None:
    path = tmp_path / "task.toml"
    path.write_text(
        f'name = "other"\nimage = "debian-12"\ntest = {{ sh = "sim: 1s" }}\nspend_cap = {cap}\n'
    )
    result = _shell(door, "snapshots", "build", str(path))
    assert result.exit_code == ExitCode.BAD_USAGE
    assert "spend_cap" in result.stderr
    assert door.get("/v1/snapshots")["snapshots"][0]["name"] == "task-suite"
