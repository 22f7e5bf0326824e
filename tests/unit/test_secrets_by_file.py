"""Secrets by file: one a file, after the environment, and never silently absent."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from app.errors import BadRequest
from infra.settings import SETTINGS_FILE, Settings, as_json, load

NAMES = {name for name in Settings.model_fields if "SecretStr" in str(Settings.model_fields[name])}


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the environment names, and no setting of this machine's own."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PROMIGENCE_{name.upper()}", raising=False)
    folder = tmp_path / "secrets"
    folder.mkdir()
    monkeypatch.setenv("PROMIGENCE_SECRETS_DIR", str(folder))
    return folder


def test_every_secret_may_be_a_file(secrets: Path) -> None:
    assert {"database_url", "redis_url", "key_secret", "flower_password", "metrics_token"} <= NAMES
    said = {name: f"postgresql://the-{name}/0" for name in NAMES}
    for name in NAMES:
        (secrets / f"promigence_{name}").write_text(said[name])

    settings = Settings()

    assert {name: _plain(settings, name) for name in NAMES} == said


def test_the_environment_wins_over_a_file(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (secrets / "promigence_redis_url").write_text("redis://of-the-file/0")
    (secrets / "promigence_database_url").write_text("postgresql://of-the-file/0")
    monkeypatch.setenv("PROMIGENCE_REDIS_URL", "redis://of-the-environment/0")

    settings = Settings()

    assert settings.broker_url == "redis://of-the-environment/0"
    assert settings.database == "postgresql://of-the-file/0"


def test_what_up_wrote_wins_over_a_file(secrets: Path, tmp_path: Path) -> None:
    started = Settings(dir=tmp_path, key_secret=SecretStr("as it was started"))
    (tmp_path / SETTINGS_FILE).write_text(as_json(started))
    (secrets / "promigence_key_secret").write_text("of the file")
    (secrets / "promigence_metrics_token").write_text("came later")

    again = load(tmp_path)

    assert again == started
    assert again.metrics_token is None


@pytest.mark.parametrize(("written", "read"), [("s\n", "s"), ("s\r\n", "s"), (" s \n", " s ")])
def test_a_newline_at_the_end_is_no_part_of_it(written: str, read: str, secrets: Path) -> None:
    (secrets / "promigence_key_secret").write_bytes(written.encode())

    assert _plain(Settings(), "key_secret") == read


@pytest.mark.parametrize("place", ["nowhere", "a file"])
def test_without_such_a_folder_there_are_no_secrets_in_it(place: str, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()

    assert Settings(secrets_dir=tmp_path / place).database_url is None


def test_only_secrets_are_read_from_files(secrets: Path) -> None:
    (secrets / "promigence_machines").write_text("paper")
    (secrets / "key_secret").write_text("another program's")

    assert Settings().machines == "real"
    assert Settings().key_secret is None


@pytest.mark.parametrize("held", [b"", b"\n", b"two\nlines", b"\xff\xfe", b"x" * 70_000])
def test_a_file_without_a_secret_is_told(held: bytes, secrets: Path) -> None:
    (secrets / "promigence_key_secret").write_bytes(held)

    with pytest.raises(BadRequest, match="promigence_key_secret") as refused:
        Settings()
    assert refused.value.code == "bad_settings"


def test_a_secret_that_cannot_be_read_is_told_and_not_taken_for_absent(secrets: Path) -> None:
    """As root every file can be read, so a link to nowhere stands in for one that others own."""
    (secrets / "promigence_database_url").symlink_to(secrets / "gone")
    with pytest.raises(BadRequest, match="promigence_database_url cannot be read"):
        Settings()
    (secrets / "promigence_database_url").unlink()
    (secrets / "promigence_database_url").mkdir()
    with pytest.raises(BadRequest, match="cannot be read"):
        Settings()


def test_what_a_file_said_is_not_in_the_complaint(secrets: Path) -> None:
    (secrets / "promigence_key_secret").write_text("hush\nhush")

    with pytest.raises(BadRequest) as refused:
        Settings()
    assert "hush" not in str(refused.value)


def _plain(settings: Settings, name: str) -> str:
    secret = getattr(settings, name)
    assert isinstance(secret, SecretStr)
    return secret.get_secret_value()
