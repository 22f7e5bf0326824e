"""The key's project, by SDK and CLI; and what a quote says of its limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from promigence import Conflict, Promigence
from promigence.cli import app
from promigence.cli.exits import ExitCode
from tests.sdk import shapes
from tests.sdk.wire import FakeTime, Wire, client_of, ok, refused


def cli(wire: Wire, time: FakeTime, *args: str) -> Result:
    return CliRunner().invoke(app, args, obj=lambda: client_of(wire, time))


def test_a_project_is_the_answer_as_it_came(client: Promigence, wire: Wire) -> None:
    wire.will(ok(shapes.project()))
    assert client.project() == shapes.project()
    assert wire.lines == ["GET /v1/project"]


def test_a_budget_that_is_spent_is_a_conflict_with_its_figures(
    client: Promigence, wire: Wire
) -> None:
    wire.will(refused(409, "project_budget_exhausted", details={"project_left_usd": 0.25}))
    with pytest.raises(Conflict) as caught:
        client.runs.start("task-suite", count=2, spend_cap=1.0, exec={"sh": "true"})
    assert (caught.value.code, caught.value.retryable) == ("project_budget_exhausted", False)
    assert caught.value.details["project_left_usd"] == 0.25
    assert len(wire.asked) == 1


def test_a_budget_that_is_spent_ends_a_command_as_a_cap_does(wire: Wire, time: FakeTime) -> None:
    wire.will(refused(409, "project_budget_exhausted"))
    words = ("runs", "quote", "task-suite", "--count", "2", "--spend-cap", "1")
    assert cli(wire, time, *words).exit_code == ExitCode.CAPPED


def test_a_person_reads_what_is_left_and_what_is_held(wire: Wire, time: FakeTime) -> None:
    wire.will(ok(shapes.project()))
    shown = cli(wire, time, "project").stdout.splitlines()
    assert shown == [
        "lab  2026-11: $1.500000 charged, $2.500000 held by live runs, $1.000000 left of $5.000000",
        "a new month begins 2026-12-01T00:00:00.000Z",
        "3 forks placed now, 8 at most",
    ]


def test_a_person_reads_that_there_are_no_limits(wire: Wire, time: FakeTime) -> None:
    free: Any = {"monthly_budget_usd": None, "left_usd": None, "max_forks": None}
    wire.will(ok({**shapes.project(), **free}))
    shown = cli(wire, time, "project").stdout
    assert "held by live runs, no budget" in shown
    assert "3 forks placed now, no limit" in shown


def test_json_is_the_answer_too(wire: Wire, time: FakeTime) -> None:
    wire.will(ok(shapes.project()))
    assert json.loads(cli(wire, time, "project", "--json").stdout) == shapes.project()


def test_a_quote_is_shown_with_the_limit_that_binds(wire: Wire, time: FakeTime) -> None:
    bound: Any = shapes.quote()
    bound["limits"] |= {"binding": "project_budget", "project_left_usd": 0.2}
    bound["concurrency"] |= {"slots": 1, "free_now": 1, "binding": "project"}
    words = ("runs", "quote", "task-suite", "--count", "2", "--spend-cap", "1")
    wire.will(ok(bound), ok(shapes.quote()))
    shown = " ".join(cli(wire, time, *words).stdout.split())
    assert "project's month $0.200000, which binds)" in shown
    assert "(1 slots by the project's limit, tcg)" in shown
    assert "project" not in cli(wire, time, *words).stdout
