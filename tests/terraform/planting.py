"""Mistakes for Terraform to find: arguments that do not exist, at every depth, and required ones left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

OPENED = re.compile(r'(?P<kind>resource|data|ephemeral|provider|module) "(?P<type>[\w-]+)".*\{')
# What the language itself defines takes no arguments of the provider's.
NESTED = re.compile(
    r"  +(?!lifecycle |provisioner |connection |precondition |postcondition )\w+ \{"
)
# On a line of its own, to its end.
ARGUMENT = re.compile(r"  (?P<name>\w+) += (?!.*(?:[\[{(,?:]|<<-?\w+)$).*")
MISSPELT = "misspelt"
NO_SUCH = "Unsupported argument"
MISSING = "Missing required argument"


@dataclass(frozen=True, slots=True)
class Mistake:
    """What Terraform has to say of a block, on which line: the argument's, or the first of the block that lacks one."""

    summary: str
    block: str
    file: str
    line: int


def plant(
    folder: Path,
    kinds: frozenset[str],
    required: Mapping[str, frozenset[str]],
    spared: frozenset[str],
) -> list[Mistake]:
    """Spoils every block of these kinds in the folder's files but the spared ones; says what is wrong now.

    `required` are the arguments that cannot be left out, by the block's type (for a module's call: its name). One of
    each block is taken away, if it has one on a line of its own.
    """
    planted: list[Mistake] = []
    for path in sorted(folder.glob("*.tf")):
        spoilt, mistakes = _spoil(path, kinds, required, spared)
        path.write_text("\n".join(spoilt) + "\n")
        planted += mistakes
    return planted


def _spoil(
    path: Path,
    kinds: frozenset[str],
    required: Mapping[str, frozenset[str]],
    spared: frozenset[str],
) -> tuple[list[str], list[Mistake]]:
    lines: list[str] = []
    mistakes: list[Mistake] = []
    block, begun, needed = "", 0, frozenset[str]()
    for line in path.read_text().splitlines():
        if opened := OPENED.fullmatch(line):
            block = line if opened["kind"] in kinds and line not in spared else ""
            begun, needed = len(lines) + 1, required.get(opened["type"], frozenset())
        elif line == "}":
            block = ""
        argument = ARGUMENT.fullmatch(line)
        if block and argument and argument["name"] in needed:
            mistakes.append(Mistake(MISSING, block, path.name, begun))
            needed = frozenset()
            continue
        lines.append(line)
        if block and (opened or NESTED.fullmatch(line)):
            lines.append(f"{MISSPELT} = 1")
            mistakes.append(Mistake(NO_SUCH, block, path.name, len(lines)))
    return lines, mistakes
