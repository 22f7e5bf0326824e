"""What import contracts cannot say: who may use what beyond the standard library, and who may read the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.source import (
    ROOT,
    beyond_stdlib,
    environment_reads,
    imported,
    loose_dataclasses,
    parse,
    python_files,
)

API = ROOT / "app" / "api"
PLAIN = tuple(path for path in python_files("app") if API not in path.parents)
DOMAIN = python_files("app/domain")
SERVER = python_files("app", "infra", "workers")
SETTINGS = ROOT / "infra" / "settings.py"
AWS = ROOT / "infra" / "aws"

# A noun is given the time, is told what was read, and decides by nothing but its arguments.
IMPURE = {
    "asyncio", "io", "logging", "multiprocessing", "os", "random", "secrets", "shutil", "signal",
    "socket", "sqlite3", "subprocess", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PLAIN, ids=_name)
def test_app_below_its_api_is_standard_library_only(path: Path) -> None:
    assert beyond_stdlib(parse(path), "app") == set()


@pytest.mark.parametrize("path", DOMAIN, ids=_name)
def test_a_noun_has_no_clock_and_no_io(path: Path) -> None:
    assert imported(parse(path)) & IMPURE == set()


@pytest.mark.parametrize("path", DOMAIN, ids=_name)
def test_a_noun_is_frozen_and_slotted(path: Path) -> None:
    assert loose_dataclasses(parse(path)) == []


@pytest.mark.parametrize("path", python_files("guest"), ids=_name)
def test_the_guest_knows_nobody(path: Path) -> None:
    assert beyond_stdlib(parse(path), "guest") == set()


@pytest.mark.parametrize("path", python_files("infra/setup"), ids=_name)
def test_set_up_runs_before_anything_is_installed(path: Path) -> None:
    assert beyond_stdlib(parse(path)) == set()


@pytest.mark.parametrize("path", sorted(set(SERVER) - {SETTINGS}), ids=_name)
def test_only_settings_read_the_environment(path: Path) -> None:
    assert environment_reads(parse(path)) == []


@pytest.mark.parametrize("path", SERVER, ids=_name)
def test_only_one_folder_knows_the_cloud_and_none_its_stand_in(path: Path) -> None:
    of_cloud = {"boto3", "botocore", "s3transfer"} if AWS not in path.parents else set()
    assert imported(parse(path)) & (of_cloud | {"moto"}) == set()
