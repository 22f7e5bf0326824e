"""Each module and each root, as Terraform sees it: written well, valid, and doing what its own tests say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.terraform.folders import folders
from tests.terraform.program import Terraform


def test_every_file_is_formatted(terraform: Terraform, tree: Path) -> None:
    done = terraform.run(tree, "fmt", "-check", "-recursive", "-diff", "-no-color")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("folder", folders())
def test_is_valid(terraform: Terraform, tree: Path, folder: str) -> None:
    terraform.initialise(tree / folder)
    assert terraform.validate(tree / folder) == []


@pytest.mark.parametrize("folder", folders("modules/*"))
def test_does_what_its_own_tests_say(terraform: Terraform, tree: Path, folder: str) -> None:
    terraform.initialise(tree / folder)
    done = terraform.run(tree / folder, "test", "-no-color")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^Success! [1-9]\d* passed, 0 failed", done.stdout, re.MULTILINE), done.stdout
