"""`promigence-server keys` and `audit` as an operator types them; and that his changes are in the log."""

from __future__ import annotations

import json
import pwd
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.domain.account import Scope
from app.domain.money import NS_PER_SECOND
from app.errors import BadRequest, NotFound
from infra import wiring
from infra.settings import load
from tests import builders as a
from workers import noted
from workers.server import app


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a migrated database and nothing that runs; a user that logged in as root, say."""
    monkeypatch.setenv("PROMIGENCE_KEY_SECRET", "the present one")
    login = tmp_path / "loginuid"
    login.write_text("0")
    monkeypatch.setattr(noted, "_LOGIN_UID", login)
    wiring.migrate(load(tmp_path))
    return tmp_path


def run(stack: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--dir", str(stack)])


def told(stack: Path, *words: str) -> Any:
    done = run(stack, *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_key_is_made_with_all_scopes_or_those_that_are_named(stack: Path) -> None:
    secret = run(stack, "keys", "create", "laptop").stdout.strip()
    words = ("keys", "create", "trainer", "--scope", "run", "--scope", "read", "--expires", "30")
    narrow = told(stack, *words, "--project", "lab")
    assert (narrow["scopes"], narrow["project"]) == (["read", "run"], "lab")
    with wiring.control(load(stack)) as control:
        assert control.ports.keys.caller_of(secret).scopes == frozenset(Scope)
        caller = control.ports.keys.caller_of(narrow["secret"])
        assert (caller.project_id, set(caller.scopes)) == ("lab", {Scope.READ, Scope.RUN})
    assert narrow["expires_at"] is not None
    assert run(stack, "keys", "create", "x", "--scope", "all").exit_code == 2


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb"])
def test_a_name_that_is_none_makes_no_key(stack: Path, name: str) -> None:
    assert isinstance(run(stack, "keys", "create", name).exception, BadRequest)
    assert told(stack, "keys", "list") == []


def test_a_key_ends_within_ten_years_if_it_ends(stack: Path) -> None:
    assert run(stack, "keys", "create", "x", "--expires", "3651").exit_code == 2
    assert told(stack, "keys", "create", "x", "--expires", "3650")["state"] == "live"


def test_a_key_whose_time_is_over_is_listed_so(
    stack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(stack, "keys", "create", "x", "--expires", "1")
    tomorrow_ns = time.time_ns() + 24 * 3600 * NS_PER_SECOND
    monkeypatch.setattr("workers.keys.time.time_ns", lambda: tomorrow_ns)
    assert [key["state"] for key in told(stack, "keys", "list")] == ["expired"]


def test_keys_are_listed_with_their_use_and_what_they_are_hashed_with(
    stack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = told(stack, "keys", "create", "old")
    told(stack, "keys", "create", "of lab", "--project", "lab")
    (seen,) = told(stack, "keys", "list", "--project", "default")
    assert (seen["hashed_with"], seen["last_used_at"]) == ("present", None)
    assert "secret" not in seen
    monkeypatch.setenv("PROMIGENCE_KEY_SECRET", "a new one")
    monkeypatch.setenv("PROMIGENCE_KEY_SECRET_PREVIOUS", "the present one")
    assert {key["hashed_with"] for key in told(stack, "keys", "list")} == {"previous"}
    with wiring.control(load(stack)) as control:
        control.ports.keys.caller_of(made["secret"])
    lines = run(stack, "keys", "list").stdout.splitlines()
    assert "hashed with" in lines[0]
    assert [("present" in line, "previous" in line) for line in lines[1:]] == [
        (True, False),
        (False, True),
    ]
    monkeypatch.delenv("PROMIGENCE_KEY_SECRET_PREVIOUS")
    assert [key["hashed_with"] for key in told(stack, "keys", "list")] == ["present", "lost"]


def test_an_operator_revokes_the_last_key_too(stack: Path) -> None:
    key = told(stack, "keys", "create", "only")
    assert run(stack, "keys", "revoke", key["key_id"]).exit_code == 0
    assert told(stack, "keys", "revoke", key["key_id"])["state"] == "revoked"
    error = run(stack, "keys", "revoke", "key_none").exception
    assert isinstance(error, NotFound)


def test_what_an_operator_changes_is_in_the_log_with_his_name(stack: Path) -> None:
    with wiring.control(load(stack)) as control:
        control.ports.hosts.register(a.fingerprint(), 16)
    key = told(stack, "keys", "create", "k", "--project", "lab")
    run(stack, "keys", "revoke", key["key_id"])
    run(stack, "projects", "set", "lab", "--max-forks", "3")
    run(stack, "hosts", "quarantine", a.HOST, "--reason", "planted")
    run(stack, "hosts", "release", a.HOST)
    run(stack, "keys", "revoke", "key_none")
    seen = [
        (each["project"], each["action"], each["target"], each["outcome"])
        for each in reversed(told(stack, "audit"))
    ]
    assert seen == [
        ("lab", "keys.create", key["key_id"], "done"),
        ("lab", "keys.revoke", key["key_id"], "done"),
        ("lab", "projects.set", "lab", "done"),
        (None, "hosts.quarantine", a.HOST, "done"),
        (None, "hosts.release", a.HOST, "done"),
        (None, "keys.revoke", "key_none", "refused"),
    ]
    assert {each["actor"] for each in told(stack, "audit")} == {"operator:root"}
    assert key["secret"] not in run(stack, "audit").stdout


def test_commands_that_only_look_leave_nothing(stack: Path) -> None:
    for words in (("keys", "list"), ("projects", "list"), ("hosts",), ("audit",)):
        assert run(stack, *words).exit_code == 0
    assert told(stack, "audit") == []


def test_the_log_is_sought_by_project_action_and_time(stack: Path) -> None:
    for project in ("lab", "attic"):
        told(stack, "keys", "create", "k", "--project", project)
        told(stack, "projects", "set", project)
    of_lab = told(stack, "audit", "--project", "lab")
    assert [each["action"] for each in of_lab] == ["projects.set", "keys.create"]
    assert len(told(stack, "audit", "--action", "keys.create")) == 2
    assert len(told(stack, "audit", "--limit", "3")) == 3
    assert told(stack, "audit", "--until", of_lab[-1]["at"]) == []
    assert len(told(stack, "audit", "--from", of_lab[-1]["at"])) == 4
    assert len(told(stack, "audit", "--key", "operator:root")) == 4


def test_who_has_not_logged_in_is_whom_the_process_runs_as(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = tmp_path / "loginuid"
    monkeypatch.setattr(noted, "_LOGIN_UID", login)
    monkeypatch.setattr("os.getuid", lambda: 0)
    assert noted.operator() == pwd.getpwuid(0).pw_name
    login.write_text(str(2**32 - 1))
    assert noted.operator() == pwd.getpwuid(0).pw_name
    login.write_text("3999999999")
    assert noted.operator() == "3999999999"
