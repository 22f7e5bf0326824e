"""`promigence-server hosts admit --into`: a host's own logins as files, made once."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
import redis
from redis.exceptions import NoPermissionError
from typer.testing import CliRunner

from drills.rehearsal import redis as broker
from infra.settings import Settings
from workers.hosts import LOGINS, hosts

HOST = "in-a-container"


def test_a_host_is_let_in_by_files_and_those_that_are_there_stay(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "access"
    with broker.running() as queue:
        monkeypatch.setenv("PROMIGENCE_DATABASE_URL", postgres_url)
        monkeypatch.setenv("PROMIGENCE_REDIS_URL", queue)
        monkeypatch.setenv("PROMIGENCE_REDIS_ADMIN_URL", queue)
        try:
            first = _said("admit", HOST, "--into", str(folder), "--dir", str(tmp_path))
            made = {path.name: path.read_text() for path in folder.iterdir()}
            assert made.keys() == {f"promigence_{name}" for name in LOGINS}
            assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600, 0o600]
            assert not [url for url in made.values() if url in first]
            _opens_as_a_host(folder, monkeypatch)

            again = _said("admit", HOST, "--into", str(folder), "--dir", str(tmp_path))
            assert f"{HOST} has its logins" in again
            assert {path.name: path.read_text() for path in folder.iterdir()} == made
        finally:
            _said("expel", HOST, "--dir", str(tmp_path))


def _opens_as_a_host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker with this folder finds in its settings."""
    with monkeypatch.context() as inside:
        for name in Settings.model_fields:
            inside.delenv(f"PROMIGENCE_{name.upper()}", raising=False)
        settings = Settings(secrets_dir=folder)
    with psycopg.connect(settings.database.replace("+psycopg", "")) as connection:
        assert connection.execute("SELECT current_user").fetchone() == (f"promigence_host_{HOST}",)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM api_key")
    client = redis.Redis.from_url(settings.broker_url)
    try:
        with pytest.raises(NoPermissionError):
            client.lpush("host.another", "a bell")
    finally:
        client.close()


def _said(*words: str) -> str:
    done = CliRunner().invoke(hosts, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output
