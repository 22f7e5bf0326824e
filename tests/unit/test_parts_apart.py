"""A part that no `up` started is told where database and queue are, or does not begin: it would begin its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.errors import BadRequest
from infra.settings import SETTINGS_FILE, Settings
from workers import server
from workers.server import STORES, app

URLS = {"database_url": "postgresql://u@db/p", "redis_url": "rediss://u@queue:6379/0"}


@pytest.fixture(autouse=True)
def _a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PROMIGENCE_{name.upper()}", raising=False)
    monkeypatch.setenv("PROMIGENCE_SECRETS_DIR", "/nonexistent")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(server, "configure", lambda *_: None)


def refused(part: str, directory: Path) -> str:
    error = CliRunner().invoke(app, [part, "--dir", str(directory)]).exception
    assert isinstance(error, BadRequest), error
    assert error.code == "parts_apart"
    assert not list(directory.iterdir()), "something was begun"
    return error.message


@pytest.mark.parametrize("part", ["serve", "billing", "worker"])
def test_a_part_without_its_secrets_begins_nothing(part: str, tmp_path: Path) -> None:
    said = refused(part, tmp_path)
    assert "set PROMIGENCE_DATABASE_URL, PROMIGENCE_REDIS_URL, or" in said
    assert "/nonexistent" in said, "where its files would be"


@pytest.mark.parametrize("name", URLS)
def test_one_of_both_is_not_enough(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"PROMIGENCE_{name.upper()}", URLS[name])
    said = refused("billing", tmp_path)
    assert f"PROMIGENCE_{name.upper()}" not in said


def test_flower_looks_at_no_queue_of_its_own(tmp_path: Path) -> None:
    assert "set PROMIGENCE_FLOWER_REDIS_URL or PROMIGENCE_REDIS_URL, or" in refused(
        "flower", tmp_path
    )


@pytest.mark.parametrize("name", ["flower_redis_url", "redis_url"])
def test_flower_goes_by_its_own_user_or_the_control_planes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"PROMIGENCE_{name.upper()}", URLS["redis_url"])
    assert server._process(tmp_path, *server.QUEUE_TO_LOOK_AT).flower_broker_url


@pytest.mark.parametrize("written", [URLS, None, {}])
def test_a_part_of_a_stack_and_one_that_was_told_go_on(
    written: dict[str, Any] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if written is None:
        for name, url in URLS.items():
            monkeypatch.setenv(f"PROMIGENCE_{name.upper()}", url)
    else:
        (tmp_path / SETTINGS_FILE).write_text(json.dumps(written))
    assert server._process(tmp_path, *STORES).dir == tmp_path
