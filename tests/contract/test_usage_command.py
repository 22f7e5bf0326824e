"""`promigence-server usage` as an operator types it, over rows of now."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.domain.instant import instant
from app.domain.usage import NS_PER_DAY
from app.errors import BadRequest
from infra.fakes.clock import ManualClock
from infra.store import create_store
from tests import builders as a
from tests.contract.rows import Rows
from workers.server import app


@pytest.fixture
def stack(sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack's directory whose database knows one machine, which lived for three seconds."""
    path = tmp_path / "store.db"
    path.write_bytes(sqlite_template.read_bytes())
    monkeypatch.setenv("PROMIGENCE_DATABASE_URL", f"sqlite:///{path}")
    monkeypatch.setenv("PROMIGENCE_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("PROMIGENCE_MACHINES", "fake")
    store = create_store(f"sqlite:///{path}")
    rows = Rows(store, ManualClock())
    rows.close(rows.started(), at_s=3)
    rows.store.resources.intend(a.volume("tok_1", size_gib=730_000), NS_PER_DAY)
    rows.store.resources.made("tok_1", "vol-1")
    store.close()
    return tmp_path


def test_the_operator_sees_every_project(stack: Path) -> None:
    yesterday = instant(time.time_ns() - NS_PER_DAY)
    asked = ["usage", "--dir", str(stack), "--from", yesterday, "--json"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["project"], told["by"]) == (None, ["project", "day"])
    nobodys, ours = told["rows"]
    assert (nobodys["project"], ours["project"]) == (None, a.PROJECT)
    assert (nobodys["forks"], ours["estimate"]["volumes_usd"]) == (0, 0)
    assert nobodys["estimate"]["volumes_usd"] == told["total"]["estimate"]["storage_usd"]
    assert told["total"]["charged_usd"] == 3 * a.MICROS_PER_SECOND / 1e6


def test_a_person_gets_a_table(stack: Path) -> None:
    yesterday = instant(time.time_ns() - NS_PER_DAY)
    asked = ["usage", "--dir", str(stack), "--by", "snapshot", "--from", yesterday]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert "volumes  snapshots" in result.stdout
    lines = [line.split() for line in result.stdout.splitlines() if "0.003000" in line]
    assert [line[0] for line in lines] == ["task-suite@1", "total"]
    assert lines[0][1:] == ["1", "0.00", "0.003000", "0.003000", "0.000000", "0.000000"]


def test_a_window_that_is_none_is_refused(stack: Path) -> None:
    result = CliRunner().invoke(app, ["usage", "--dir", str(stack), "--from", "2199-01-01"])
    assert isinstance(result.exception, BadRequest)
    assert result.exception.code == "bad_window"
