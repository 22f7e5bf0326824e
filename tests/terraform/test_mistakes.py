"""A mistake in any block of any module or root is seen, so that a green check says something."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.terraform.bindings import Types
from tests.terraform.conftest import copied
from tests.terraform.folders import folders
from tests.terraform.planting import MISSING, NO_SUCH, Mistake, plant
from tests.terraform.program import Terraform

# A wrong call of a module ends the validation before resources are looked at.
CALLS = frozenset({"module"})
OF_PROVIDER = frozenset({"resource", "data", "ephemeral", "provider"})
VARIABLE = re.compile(r'^variable "(\w+)" \{(.*?)^}', re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("folder", folders())
def test_a_misspelt_argument_and_a_missing_one_are_seen(
    terraform: Terraform, types: Types, tmp_path: Path, folder: str
) -> None:
    original = copied(tmp_path)
    seen = _all_seen(terraform, original, folder, CALLS, _required_inputs(original))
    seen |= _all_seen(terraform, original, folder, OF_PROVIDER, _required_arguments(types))
    assert {mistake.summary for mistake in seen} == {NO_SUCH, MISSING}


def _all_seen(
    terraform: Terraform,
    original: Path,
    folder: str,
    kinds: frozenset[str],
    required: Mapping[str, frozenset[str]],
) -> set[Mistake]:
    """Plants in all blocks at once, then again in those that Terraform passed over, as they depend on others."""
    seen: set[Mistake] = set()
    while True:
        tree = copied(original.parent, name=f"{min(kinds)}-{len(seen)}")
        planted = plant(
            tree / folder, kinds, required, spared=frozenset(each.block for each in seen)
        )
        if not planted:
            return seen
        told = _told(terraform, tree / folder)
        found = {each for each in planted if (each.summary, each.file, each.line) in told}
        unseen = sorted(map(str, set(planted) - found))
        assert found, f"Terraform sees none of {unseen}"
        passed_over = {each.block for each in planted} - {each.block for each in found}
        assert {each.block for each in set(planted) - found} == passed_over, (
            f"of one block: {unseen}"
        )
        seen |= found


def _told(terraform: Terraform, folder: Path) -> set[tuple[str, str, int]]:
    terraform.initialise(folder)
    said = terraform.validate(folder)
    return {
        (each["summary"], each["range"]["filename"], each["range"]["start"]["line"])
        for each in said
    }


def _required_inputs(tree: Path) -> Mapping[str, frozenset[str]]:
    return {
        folder.name: frozenset(
            name
            for file in folder.glob("*.tf")
            for name, body in VARIABLE.findall(file.read_text())
            if not re.search(r"^  default ", body, re.MULTILINE)
        )
        for folder in (tree / "modules").iterdir()
    }


def _required_arguments(types: Types) -> Mapping[str, frozenset[str]]:
    return {
        name: frozenset(each.name for each in block.attributes if each.required)
        for blocks in types.values()
        for name, block in blocks.items()
    }
