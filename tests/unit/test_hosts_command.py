"""`promigence-server hosts` as an operator types it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.domain.disk import DiskRoom
from app.domain.money import NS_PER_SECOND
from app.domain.spot import Notice
from app.errors import NotFound
from infra import wiring
from infra.settings import load
from infra.store import Stores, create_store
from tests import builders as a
from workers.server import app


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Stores]:
    """The rows of a stack in `tmp_path` of which nothing runs, and a host in them."""
    settings = load(tmp_path)
    wiring.migrate(settings)
    made = create_store(settings.database)
    made.hosts.register(a.fingerprint(), 16)
    yield made
    made.close()


def run(stack: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["hosts", *words, "--dir", str(stack)])


def told(stack: Path) -> Any:
    done = CliRunner().invoke(app, ["hosts", "--dir", str(stack), "--json"])
    assert done.exit_code == 0, done.output
    (host,) = json.loads(done.stdout)
    return host


def test_a_host_is_shown_with_its_room(tmp_path: Path, store: Stores) -> None:
    shown = told(tmp_path)
    assert (shown["host_id"], shown["state"], shown["quarantine"]) == (a.HOST, "up", None)
    assert (shown["memory_free_mib"], shown["disk_free_gib"]) == (16 * 512, 16 * 4)
    assert shown["restore_keys"] == [str(a.KEY)]
    done = CliRunner().invoke(app, ["hosts", "--dir", str(tmp_path)])
    assert done.exit_code == 0
    assert a.HOST in done.stdout
    assert "8192/8192" in done.stdout
    assert "any stored" in done.stdout


def test_a_host_that_is_taken_back_says_where_it_is_and_until_when(
    tmp_path: Path, store: Stores
) -> None:
    store.hosts.register(a.fingerprint(), 16, zone="us-east-1b", fetches=False)
    store.hosts.give_notice(a.HOST, Notice("terminate", 120 * NS_PER_SECOND))
    shown = told(tmp_path)
    assert (shown["state"], shown["zone"], shown["fetches"]) == ("draining", "us-east-1b", False)
    assert shown["unready"] == f"the cloud takes it back at {shown['gone_at']}"
    words = CliRunner().invoke(app, ["hosts", "--dir", str(tmp_path)]).stdout
    for word in ("us-east-1b", "its own", shown["gone_at"]):
        assert word in words


def test_a_host_that_is_short_of_disk_says_how_much_is_left(tmp_path: Path, store: Stores) -> None:
    store.hosts.heartbeat(a.HOST, (), disk=DiskRoom(1 << 30, 2 << 30))
    shown = told(tmp_path)
    assert (shown["state"], shown["disk_left_bytes"]) == ("disk_low", 1 << 30)
    assert shown["unready"] == "its disk is nearly full: 1.0 GiB left"
    assert "1.0 GiB left" in CliRunner().invoke(app, ["hosts", "--dir", str(tmp_path)]).stdout


def test_an_operator_takes_a_host_out_and_lets_it_back(tmp_path: Path, store: Stores) -> None:
    assert run(tmp_path, "quarantine", a.HOST, "--reason", "new memory").exit_code == 0
    shown = told(tmp_path)
    assert shown["state"] == "quarantined"
    assert shown["quarantine"]["reason"] == "new memory"
    assert shown["quarantine"]["by_operator"] is True
    assert "new memory" in CliRunner().invoke(app, ["hosts", "--dir", str(tmp_path)]).stdout
    assert "takes forks again" in run(tmp_path, "release", a.HOST).stdout
    assert told(tmp_path)["state"] == "up"
    assert "is in no quarantine" in run(tmp_path, "release", a.HOST).stdout


def test_what_an_operator_did_is_said_in_json_too(tmp_path: Path, store: Stores) -> None:
    shut = run(tmp_path, "quarantine", a.HOST, "--reason", "x", "--json")
    assert json.loads(shut.stdout) == {"host_id": a.HOST, "quarantined": True}
    for released in (True, False):
        answer = json.loads(run(tmp_path, "release", a.HOST, "--json").stdout)
        assert answer == {"host_id": a.HOST, "quarantined": False, "released": released}


def test_a_host_that_nobody_knows_is_named(tmp_path: Path, store: Stores) -> None:
    for words in (("quarantine", "host9", "--reason", "x"), ("release", "host9")):
        error = run(tmp_path, *words).exception
        assert isinstance(error, NotFound)
        assert "host9" in error.message


def test_a_quarantine_needs_its_reason(tmp_path: Path, store: Stores) -> None:
    assert run(tmp_path, "quarantine", a.HOST).exit_code == 2
    assert told(tmp_path)["state"] == "up"
