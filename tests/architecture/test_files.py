"""Rules about files: how long they are, what a lock file and the list of packages say."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, hidden

LONGEST = 400
FOLDERS = ("app", "bench", "demo", "drills", "guest", "infra", "sdk", "tests", "workers")
# A migration is one step, whole.
MIGRATIONS = Path("infra/store/migrations/versions")
KINDS = {".py", ".c", ".h", ".sh"}
LOCKS = ("requirements.txt", "requirements-dev.txt")
PINNED = re.compile(r"[a-z0-9.-]+(\[[a-z,]+\])?==\S+( ; [^\\]+)? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
HOWS = {f"{how}{where}" for how in ("install", "unpack") for where in ("", "@debian", "@ubuntu")}


def _sources() -> list[Path]:
    paths = [path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    ours = (path for path in paths if not hidden(path) and MIGRATIONS not in path.parents)
    return [path for path in ours if path.suffix in KINDS]


def test_no_source_file_is_longer_than_a_reader_keeps_in_mind() -> None:
    lengths = {str(path): len((ROOT / path).read_text().splitlines()) for path in _sources()}
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_has_versions_and_hashes_and_names_no_index(name: str) -> None:
    lines = [line for line in (ROOT / name).read_text().splitlines() if line.strip()]
    said = [line for line in lines if not line.lstrip().startswith("#")]
    assert said
    assert [line for line in said if not (PINNED.fullmatch(line) or HASH.fullmatch(line))] == []
    assert [line for line in lines if "://" in line] == []


def test_every_pinned_package_has_a_hash() -> None:
    for name in LOCKS:
        lines = (ROOT / name).read_text().splitlines()
        for line, following in pairwise(lines):
            assert not PINNED.fullmatch(line) or HASH.fullmatch(following), f"{name}: {line}"


def test_every_system_package_has_a_reason() -> None:
    lines = (ROOT / "infra/setup/packages.txt").read_text().splitlines()
    entries = [line.split(None, 2) for line in lines if line and not line.startswith("#")]
    assert entries
    assert [entry for entry in entries if len(entry) < 3 or entry[0] not in HOWS] == []
    names = [entry[1] for entry in entries]
    assert len(names) == len(set(names))
