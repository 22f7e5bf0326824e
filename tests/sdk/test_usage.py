"""The usage statement: what is asked for, and how a person reads the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from promigence import BadRequest, Promigence
from promigence.cli import app
from promigence.cli.exits import ExitCode
from tests.sdk import shapes
from tests.sdk.wire import FakeTime, Wire, client_of, ok, refused


def cli(wire: Wire, time: FakeTime, *args: str) -> Result:
    return CliRunner().invoke(app, ("usage", *args), obj=lambda: client_of(wire, time))


def test_nothing_is_asked_for_that_was_not_given(client: Promigence, wire: Wire) -> None:
    wire.will(ok(shapes.usage()))
    assert client.usage() == shapes.usage()
    assert wire.lines == ["GET /v1/usage?by=day"]


def test_time_and_rows_go_out_under_their_names(client: Promigence, wire: Wire) -> None:
    wire.will(ok(shapes.usage()))
    client.usage("2026-11-01T00:00:00+02:00", "2026-12-01", by=("day", "snapshot"))
    assert dict(wire.asked[0].url.params) == {
        "from": "2026-11-01T00:00:00+02:00",
        "until": "2026-12-01",
        "by": "day,snapshot",
    }


def test_a_window_that_is_refused_has_its_code(client: Promigence, wire: Wire) -> None:
    wire.will(refused(400, "bad_window"))
    with pytest.raises(BadRequest) as caught:
        client.usage("2026-12-01", "2026-11-01")
    assert caught.value.code == "bad_window"


def test_the_table_has_charges_and_estimates_apart_to_the_micro_dollar(
    wire: Wire, time: FakeTime
) -> None:
    wire.will(ok(shapes.usage()))
    result = cli(wire, time)
    assert result.exit_code == 0
    head, *lines = result.stdout.splitlines()
    assert "2026-11-01" in head
    assert "default" in head
    assert [line.split() for line in lines[1:4]] == [
        ["day", "forks", "hours", "charged", "verification", "tasks", "environment"],
        ["2026-11-30", "3", "1.50", "1.250000", "0.250000", "1.000000", "0.000000"],
        ["total", "3", "1.50", "1.250000", "0.250000", "1.000000", "0.000000"],
    ]
    assert lines[4] == "accruing: 0.000001 more if all machines that live ended now"
    assert "estimated" in lines[5]
    assert [line.split() for line in lines[7:9]] == [
        ["2026-11-30", "0.500000", "0.125000", "2.500000", "-", "-", "-", "0.375000"],
        [
            "total",
            "0.500000",
            "0.125000",
            "2.500000",
            "1.250000",
            "0.000000",
            "0.750000",
            "0.375000",
        ],
    ]
    assert lines[9].startswith("complete until 2026-11-30T17:19:04.000Z. The estimate is no bill")


def test_json_is_the_answer_as_it_came(wire: Wire, time: FakeTime) -> None:
    told: Any = shapes.usage("snapshot", "task-suite@1")
    wire.will(ok(told))
    result = cli(wire, time, "--by", "snapshot", "--from", "2026-11-01", "--json")
    assert json.loads(result.stdout) == told
    assert wire.lines == ["GET /v1/usage?from=2026-11-01&by=snapshot"]


def test_what_the_server_refuses_is_bad_usage(wire: Wire, time: FakeTime) -> None:
    wire.will(refused(400, "bad_request"))
    result = cli(wire, time, "--by", "week")
    assert result.exit_code == ExitCode.BAD_USAGE
    assert "about bad_request" in result.stderr
