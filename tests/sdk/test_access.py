"""Keys and the audit log, by SDK and CLI."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from promigence import Conflict, Forbidden, Promigence
from promigence.cli import app
from promigence.cli.exits import ExitCode
from promigence.types import AuditEntry, Key, NewKey
from tests.sdk.wire import FakeTime, Wire, client_of, ok, refused

KEY: Key = {
    "key_id": "key_1",
    "project": "lab",
    "name": "nightly",
    "prefix": "pmg_01234567",
    "scopes": ["read", "run"],
    "created_at": "2026-12-01T06:00:00.000Z",
    "expires_at": None,
    "last_used_at": "2026-12-01T07:00:00.000Z",
    "revoked_at": None,
}
MADE: NewKey = {**KEY, "secret": "pmg_0123456789"}
ENTRY: AuditEntry = {
    "entry_id": "audit_1",
    "at": "2026-12-01T07:00:00.000Z",
    "actor": "key_1",
    "action": "start_run",
    "target": "run_1",
    "outcome": "done",
    "status": 201,
    "request_id": "req_1",
    "client": "10.0.0.7",
}


def cli(wire: Wire, time: FakeTime, *args: str) -> Result:
    return CliRunner().invoke(app, args, obj=lambda: client_of(wire, time))


def test_keys_are_listed_page_by_page(client: Promigence, wire: Wire) -> None:
    wire.will(ok({"keys": [KEY], "next_cursor": "1"}), ok({"keys": [KEY], "next_cursor": None}))
    assert client.keys.list() == [KEY, KEY]
    assert [line.partition("?")[0] for line in wire.lines] == ["GET /v1/keys"] * 2


def test_a_key_is_made_with_its_scopes_and_sent_again_as_the_same_call(
    client: Promigence, wire: Wire
) -> None:
    wire.will(refused(503, "unavailable", retryable=True), ok(MADE, 201))
    assert (
        client.keys.create("nightly", ["read", "run"], expires_days=30)["secret"] == MADE["secret"]
    )
    first, second = wire.asked
    sent = json.loads(second.content)
    assert sent == {"name": "nightly", "scopes": ["read", "run"], "expires_days": 30}
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_what_the_server_refuses_is_an_error_with_its_code(client: Promigence, wire: Wire) -> None:
    wire.will(refused(409, "last_admin_key"))
    with pytest.raises(Conflict, match="last_admin_key"):
        client.keys.revoke("key_1")
    wire.will(refused(403, "missing_scope", details={"needed": ["admin"], "scopes": ["read"]}))
    with pytest.raises(Forbidden) as caught:
        client.audit.list()
    assert caught.value.details["needed"] == ["admin"]


def test_entries_are_sought_by_key_action_and_time(client: Promigence, wire: Wire) -> None:
    wire.will(ok({"entries": [ENTRY], "next_cursor": None}))
    found = client.audit.list(key="key_1", action="start_run", from_="2026-12-01", limit=5)
    assert found == [ENTRY]
    assert wire.lines == ["GET /v1/audit?key=key_1&action=start_run&from=2026-12-01&limit=5"]


def test_a_person_gets_the_secret_by_itself_and_a_program_all_of_it(
    wire: Wire, time: FakeTime
) -> None:
    words = ("keys", "create", "nightly", "--scope", "read", "--scope", "run")
    wire.will(ok(MADE, 201), ok(MADE, 201))
    assert cli(wire, time, *words).stdout == f"{MADE['secret']}\n"
    assert json.loads(cli(wire, time, *words, "--json").stdout) == MADE
    assert "expires_days" not in json.loads(wire.asked[0].content)


def test_a_key_without_a_scope_is_bad_usage(wire: Wire, time: FakeTime) -> None:
    assert cli(wire, time, "keys", "create", "nightly").exit_code == ExitCode.BAD_USAGE
    assert cli(wire, time, "keys", "create", "n", "--scope", "all").exit_code == ExitCode.BAD_USAGE
    assert wire.asked == []


@pytest.mark.parametrize(
    ("expires", "revoked", "state"),
    [
        (None, None, "live"),
        ("2999-01-01T00:00:00.000Z", None, "live"),
        ("2026-01-01T00:00:00.000Z", None, "expired"),
        ("2026-01-01T00:00:00.000Z", "2025-12-01T06:00:00.000Z", "revoked"),
    ],
)
def test_a_key_is_live_until_it_is_over_or_revoked(
    wire: Wire, time: FakeTime, expires: str | None, revoked: str | None, state: str
) -> None:
    wire.will(
        ok({"keys": [{**KEY, "expires_at": expires, "revoked_at": revoked}], "next_cursor": None})
    )
    assert cli(wire, time, "keys", "list").stdout.split()[-1] == state


def test_a_person_reads_who_may_do_what_and_who_did(wire: Wire, time: FakeTime) -> None:
    wire.will(
        ok({"keys": [KEY], "next_cursor": None}),
        ok({"entries": [ENTRY], "next_cursor": None}),
        ok({**KEY, "revoked_at": KEY["created_at"]}),
    )
    (_, key) = cli(wire, time, "keys", "list").stdout.splitlines()
    assert key.split() == [
        *("key_1", "pmg_01234567...", "nightly", "read,run"),
        *("2026-12-01T07:00:00Z", "-", "live"),
    ]
    (_, entry) = cli(wire, time, "audit").stdout.splitlines()
    assert entry.split() == [
        *("2026-12-01T07:00:00Z", "key_1", "start_run", "run_1", "done", "req_1", "10.0.0.7"),
    ]
    assert "opens nothing" in cli(wire, time, "keys", "revoke", "key_1").stdout
