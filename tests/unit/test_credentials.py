"""What an instance logs in with, from a secret into files: waited for, whole, and for nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.errors import BadRequest, CloudRefused, NotFound, Unavailable
from infra import wiring_access
from infra.settings import Settings
from workers.credentials import fetched, write
from workers.server import app

WORDS = {"database_url": "postgresql://a:b@c/d", "redis_url": "rediss://e:f@g/0"}


class Slow:
    """A secret that comes after some questions; each costs five seconds."""

    def __init__(self, *answers: Exception) -> None:
        self.answers = list(answers)
        self.now_s = 0.0
        self.pauses: list[float] = []

    def read(self, name: str) -> dict[str, str]:
        assert name == "s"
        if self.answers:
            raise self.answers.pop(0)
        return WORDS

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds

    def fetched(self, wait_s: float) -> dict[str, str]:
        return fetched("s", self.read, wait_s, lambda: self.now_s, self.pause)


def test_a_secret_that_is_not_there_yet_is_waited_for() -> None:
    slow = Slow(NotFound("no_secret", "not yet"), Unavailable("cloud_away", "not now"))

    assert slow.fetched(12) == WORDS
    assert slow.pauses == [5, 5]


def test_the_wait_has_an_end() -> None:
    slow = Slow(*(NotFound("no_secret", "never") for _ in range(9)))

    with pytest.raises(NotFound):
        slow.fetched(12)
    assert slow.pauses == [5, 5, 2]


def test_without_a_wait_it_is_asked_once() -> None:
    slow = Slow(NotFound("no_secret", "not yet"))

    with pytest.raises(NotFound):
        slow.fetched(0)
    assert slow.pauses == []


def test_a_refusal_is_not_waited_for() -> None:
    slow = Slow(CloudRefused("refused", "it is no JSON"))

    with pytest.raises(CloudRefused):
        slow.fetched(60)
    assert slow.pauses == []


def test_each_word_is_a_file_for_this_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "secrets"
    folder.parent.mkdir()
    written = write(folder, WORDS)

    assert [path.name for path in written] == ["promigence_database_url", "promigence_redis_url"]
    assert written[0].read_text() == WORDS["database_url"]
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(folder.iterdir()) == list(written)


def test_what_was_there_is_replaced_whole_whoever_could_read_it(tmp_path: Path) -> None:
    (tmp_path / "promigence_redis_url").touch(mode=0o644)
    (tmp_path / ".promigence_redis_url.new").symlink_to(tmp_path / "elsewhere")

    (written,) = write(tmp_path, {"redis_url": "new"})

    assert written.read_text() == "new"
    assert written.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["../x", "A", "", "a/b", ".a", "a\n"])
def test_a_name_that_is_no_settings_writes_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadRequest, match="names"):
        write(tmp_path, {**WORDS, name: "x"})
    assert list(tmp_path.iterdir()) == []


def test_settings_read_what_was_written(tmp_path: Path) -> None:
    write(tmp_path, WORDS)

    settings = Settings(secrets_dir=tmp_path)

    assert settings.database == WORDS["database_url"]
    assert settings.broker_url == WORDS["redis_url"]


def test_the_command_tells_names_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMIGENCE_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("PROMIGENCE_DEPLOYMENT", "d")
    monkeypatch.setenv("PROMIGENCE_HOST_ID", "i-1")
    asked: list[str] = []

    def read(name: str) -> dict[str, str]:
        asked.append(name)
        return WORDS

    monkeypatch.setattr(wiring_access, "secret_words", lambda _: read)
    said = CliRunner().invoke(app, ["credentials", "--json", "--dir", str(tmp_path / "none")])

    assert said.exit_code == 0, said.output
    assert asked == ["promigence/d/host/i-1"]
    assert json.loads(said.stdout) == {
        "secret": "promigence/d/host/i-1",
        "written": ["promigence_database_url", "promigence_redis_url"],
    }


def test_without_a_deployment_there_is_no_secret_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="PROMIGENCE_DEPLOYMENT"):
        wiring_access.own_secret(Settings(dir=tmp_path))
    with pytest.raises(BadRequest, match="PROMIGENCE_AWS_REGION"):
        wiring_access.secret_words(Settings(dir=tmp_path))
