"""The demo's environment, for real: the pinned project with its seeded bug, its own tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from demo import environment

DEMO = Path(environment.__file__).parent
HIDDEN_COUNT = len(environment.HIDDEN_TESTS)


@pytest.fixture(scope="module")
def built() -> Path:
    return environment.prepare()


@pytest.fixture
def repo(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built / "repo", tmp_path / "repo"))


def test_all_of_the_projects_own_tests_pass_with_the_bug_present(repo: Path) -> None:
    ended = run_pytest(repo, "tests")

    assert ended.returncode == 0, ended.stdout
    assert "517 passed" in ended.stdout


def test_what_shows_a_forks_health_passes_with_the_bug_present(repo: Path) -> None:
    definition = tomllib.loads((DEMO / "task.toml").read_text())
    arguments = definition["test"]["sh"].removeprefix("python -m rollout.warm_tests ").split()

    ended = run_pytest(repo, *arguments)

    assert ended.returncode == 0, ended.stdout
    assert environment.HIDDEN_FILE in arguments
    assert "124 passed" in ended.stdout


def test_every_hidden_test_sees_the_bug_and_none_is_in_the_image(built: Path, repo: Path) -> None:
    ended = run_pytest(repo, str(built / "hidden" / "test_hidden.py"))

    assert f"{HIDDEN_COUNT} failed" in ended.stdout
    visible = "".join(path.read_text() for path in repo.rglob("*.py"))
    assert not [name for name in environment.HIDDEN_TESTS if name in visible]


def test_a_second_preparation_touches_nothing(built: Path) -> None:
    before = (built / "stamp").stat().st_ctime_ns

    assert environment.prepare() == built
    assert (built / "stamp").stat().st_ctime_ns == before


def test_a_failed_preparation_leaves_nothing_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "DOWNLOAD_TIMEOUT_SECONDS", 0)

    with pytest.raises(subprocess.TimeoutExpired):
        environment.prepare(tmp_path / "build")

    assert list(tmp_path.iterdir()) == []


SOURCE = """import math


@decorated
def test_first():
    assert math


def helper(): ...


def test_second():
    helper()
"""


def test_cutting_tests_keeps_helpers_and_takes_decorators_along() -> None:
    without = environment.without_tests(SOURCE, ("test_first",))
    only = environment.only_tests(SOURCE, ("test_first",))

    assert "decorated" not in without
    assert "test_second" in without
    assert "decorated" in only
    assert "helper" in only
    assert "test_second" not in only


def test_a_test_that_is_not_there_is_said() -> None:
    with pytest.raises(LookupError, match="test_third"):
        environment.without_tests(SOURCE, ("test_third",))


def run_pytest(repo: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=repo,
        env={**os.environ, "PYTHONPATH": str(repo), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
