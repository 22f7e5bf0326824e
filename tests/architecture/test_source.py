"""The readers of `source` see what they are meant to see; without this, no finding would mean nothing."""

from __future__ import annotations

import ast

from tests.architecture.source import (
    at_run_time,
    beyond_stdlib,
    environment_reads,
    imported,
    loose_dataclasses,
    python_files,
)


def test_imports_are_seen_inside_functions_and_as_parts_of_packages() -> None:
    tree = ast.parse(
        "import os.path\ndef f():\n    from sqlmodel.main import col\nfrom . import x\n"
    )
    assert imported(tree) == {"os", "sqlmodel"}
    assert beyond_stdlib(tree) == {"sqlmodel"}
    assert beyond_stdlib(tree, "sqlmodel") == set()


def test_what_is_imported_for_its_types_alone_is_told_apart() -> None:
    tree = ast.parse("import os\nif TYPE_CHECKING:\n    import types_boto3_ec2\n")
    assert imported(tree) == {"os", "types_boto3_ec2"}
    assert imported(at_run_time(tree)) == {"os"}


def test_each_way_to_the_environment_is_seen() -> None:
    tree = ast.parse("import os\nos.environ['A']\nos.getenv('A')\nfrom os import environ\n")
    assert sorted(environment_reads(tree)) == [2, 3, 4]


def test_a_dataclass_counts_as_tight_only_when_frozen_and_slotted() -> None:
    tree = ast.parse(
        "@dataclass\nclass A: ...\n"
        "@dataclass(frozen=True)\nclass B: ...\n"
        "@dataclasses.dataclass(frozen=True, slots=False)\nclass C: ...\n"
        "@dataclass(frozen=True, slots=True)\nclass D: ...\n"
    )
    assert loose_dataclasses(tree) == ["A", "B", "C"]


def test_the_repository_is_found() -> None:
    assert "app/errors.py" in {"/".join(path.parts[-2:]) for path in python_files("app")}
