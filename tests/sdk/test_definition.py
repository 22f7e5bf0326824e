from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from promigence import BadDefinition
from promigence.definition import check, load

TOML = """
name = "task-suite"
image = "debian-12"
shape = { vcpus = 1, memory_mib = 512, disk_gib = 4 }
files = { "./repo" = "/workspace/repo" }
setup = ["cd /workspace/repo && python -m pip install --no-index -e ."]
warm = ["python -m warm_server &"]
on_fork = ["reseed-if-needed"]
test = { sh = "python -m pytest -q tests/health", timeout_seconds = 300, repeat = 3 }
build_egress = []
egress = ["policy.internal:8000"]
spend_cap = 0.50
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "task.toml"
    path.write_text(text)
    return path


def test_every_key_of_the_format_is_known(tmp_path: Path) -> None:
    definition = load(written(tmp_path, TOML))
    assert definition["name"] == "task-suite"
    assert definition["files"] == {"./repo": "/workspace/repo"}
    assert definition["test"]["repeat"] == 3
    assert definition["spend_cap"] == 0.5


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('setpu = ["make"]', "unknown key 'setpu'; did you mean 'setup'?"),
        ("zzz = 1", "unknown key 'zzz'; known are build_egress, egress, files"),
        (
            "[shape]\nmemory_mb = 1",
            "table 'shape': unknown key 'memory_mb'; did you mean 'memory_mib'?",
        ),
        (
            "[test]\ntimeout = 1",
            "table 'test': unknown key 'timeout'; did you mean 'timeout_seconds'?",
        ),
        ('[files]\n"./a" = "work"', "files: './a' needs an absolute guest path"),
        ('[files]\n"./a" = "/workspace/../etc"', "files: './a' needs an absolute guest path"),
        ("files = 3", "'files' is a table"),
        ("a = [", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, line: str, told: str) -> None:
    path = written(tmp_path, f'name = "a"\nimage = "debian-12"\n{line}\n')
    with pytest.raises(BadDefinition) as caught:
        load(path)
    assert told in caught.value.message
    assert "task.toml" in caught.value.message


def test_bytes_that_are_no_text_are_no_toml(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadDefinition, match="is not TOML"):
        load(path)


@pytest.mark.parametrize("name", ["nothing.toml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadDefinition, match="cannot read"):
        load(tmp_path / name)


def test_name_and_image_must_be_given() -> None:
    with pytest.raises(BadDefinition, match="'image' and 'name' must be given"):
        check({})


def test_a_dict_is_looked_over_as_the_file_is_and_left_as_it_was() -> None:
    told: dict[str, Any] = {"name": "a", "image": "b", "egres": []}
    with pytest.raises(
        BadDefinition, match=r"definition: unknown key 'egres'; did you mean 'egress'"
    ):
        check(told)
    assert told == {"name": "a", "image": "b", "egres": []}
