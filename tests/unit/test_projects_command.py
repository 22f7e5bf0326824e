"""`promigence-server projects` as an operator types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.errors import BadRequest, Conflict, NotFound, PromigenceError
from infra import wiring
from infra.settings import load
from tests import builders as a
from workers.server import app


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A directory with a migrated database and nothing that runs."""
    wiring.migrate(load(tmp_path))
    return tmp_path


def run(stack: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["projects", *words, "--dir", str(stack)])


def told(stack: Path, *words: str) -> Any:
    done = run(stack, *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(stack: Path, *words: str) -> PromigenceError:
    """What the program would end with as one line and exit code 1."""
    error = run(stack, *words).exception
    assert isinstance(error, PromigenceError)
    return error


def test_where_there_is_no_stack_it_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert refused(absent, "list").code == "no_stack"
    assert refused(absent, "set", "lab").code == "no_stack"
    assert not absent.exists()


def test_limits_are_set_shown_and_taken_away(stack: Path) -> None:
    assert told(stack, "list") == []
    made = told(stack, "set", "lab", "--monthly-budget", "12.5", "--max-forks", "8")
    assert (made["monthly_budget_usd"], made["left_usd"], made["max_forks"]) == (12.5, 12.5, 8)
    assert told(stack, "show", "lab") == made
    fewer = told(stack, "set", "lab", "--max-forks", "none")
    assert fewer == made | {"max_forks": None}
    assert told(stack, "set", "lab", "--monthly-budget", "none")["monthly_budget_usd"] is None
    told(stack, "set", "attic")
    assert [each["project"] for each in told(stack, "list")] == ["attic", "lab"]


def test_a_person_reads_what_is_left_and_what_is_held(stack: Path) -> None:
    free = run(stack, "set", "lab").stdout.splitlines()
    assert free[0].endswith("$0.000000 charged, $0.000000 held by live runs, no budget")
    assert free[2] == "0 forks placed now, no limit"
    limited = run(stack, "set", "lab", "--monthly-budget", "2", "--max-forks", "3").stdout
    assert "$2.000000 left of $2.000000" in limited
    assert "0 forks placed now, 3 at most" in limited
    assert run(stack, "show", "lab").stdout == limited


def test_all_projects_are_a_table(stack: Path) -> None:
    run(stack, "set", "attic")
    run(stack, "set", "lab", "--monthly-budget", "2", "--max-forks", "3")
    lines = [line.split() for line in run(stack, "list").stdout.splitlines()]
    assert lines == [
        ["project", "budget", "charged", "held", "left", "forks", "at", "most"],
        ["attic", "-", "0.000000", "0.000000", "-", "0", "-"],
        ["lab", "2.000000", "0.000000", "0.000000", "2.000000", "0", "3"],
    ]


def test_a_key_makes_its_project_and_takes_it_as_it_is(
    stack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMIGENCE_KEY_SECRET", "k")
    told(stack, "set", "lab", "--max-forks", "3")
    for project in ("lab", "new"):
        words = ["keys", "create", "ci", "--project", project, "--dir", str(stack)]
        assert CliRunner().invoke(app, words).exit_code == 0
    assert [each["max_forks"] for each in told(stack, "list")] == [3, None]


@pytest.mark.parametrize(
    "amount", ["-5", "0", "nan", "inf", "-inf", "1e9", "100000000.01", "ten", "", "0.0000001"]
)
def test_what_is_no_budget_is_refused_and_changes_nothing(stack: Path, amount: str) -> None:
    before = told(stack, "set", "lab", "--monthly-budget", "5")
    error = refused(stack, "set", "lab", "--max-forks", "2", "--monthly-budget", amount)
    assert isinstance(error, BadRequest)
    assert error.message.startswith("monthly_budget ")
    assert told(stack, "show", "lab") == before


def test_what_is_no_limit_or_no_project_is_refused(stack: Path) -> None:
    assert refused(stack, "set", "lab", "--max-forks", "1.5").code == "bad_request"
    assert refused(stack, "set", "a b").code == "bad_request"
    assert isinstance(refused(stack, "show", "lab"), NotFound)


def test_a_limit_below_what_runs_hold_is_refused_with_the_figure(stack: Path) -> None:
    with wiring.control(load(stack)) as control:
        run, forks = a.step(2)
        control.ports.runs.start(run, forks, None)
    error = refused(stack, "set", a.PROJECT, "--monthly-budget", "0.199999", "--max-forks", "9")
    assert isinstance(error, Conflict)
    assert (error.code, error.details) == ("budget_committed", {"committed_usd": 0.2})
    page = told(stack, "set", a.PROJECT, "--monthly-budget", "0.2")
    assert (page["reserved_usd"], page["left_usd"], page["max_forks"]) == (0.2, 0.0, None)
