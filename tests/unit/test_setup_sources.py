"""Sources entries made from a machine's own: in both of apt's formats, and never a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.setup.sources import Entry, add_backports, archive, parse, write_debian

DEB822 = """\
# the archive
Types: deb deb-src
URIs: https://mirror.test/debian
Suites: bookworm
 bookworm-updates
Components: main contrib
Signed-By: /keys/archive.gpg

Types: deb
URIs: https://mirror.test/security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: https://mirror.test/debian
Suites: bookworm-backports
Components: main
"""
ONE_LINE = """\
deb-src https://mirror.test/debian bookworm main
deb https://vendor.test/tool bookworm main
deb [signed-by=/keys/archive.gpg arch=amd64] https://mirror.test/debian bookworm main contrib  # ours
deb https://mirror.test/debian bookworm-updates main
"""


def test_deb822_entries_are_read_folded_fields_and_disabled_ones_included() -> None:
    entries = list(parse(DEB822, ".sources"))
    assert [entry.suites for entry in entries] == [
        ("bookworm", "bookworm-updates"),
        ("bookworm-security",),
    ]
    assert entries[0].components == ("main", "contrib")


def test_one_line_entries_are_read_without_sources_of_source() -> None:
    entries = list(parse(ONE_LINE, ".list"))
    assert [(entry.uris[0][-6:], entry.suites[0]) for entry in entries] == [
        ("t/tool", "bookworm"),
        ("debian", "bookworm"),
        ("debian", "bookworm-updates"),
    ]


@pytest.mark.parametrize(("text", "suffix"), [(DEB822, ".sources"), (ONE_LINE, ".list")])
def test_the_archive_is_told_from_a_vendor_with_the_same_suite(text: str, suffix: str) -> None:
    found = archive(list(parse(text, suffix)), "bookworm")
    assert found is not None
    assert found.uris == ("https://mirror.test/debian",)


def test_a_replaced_suite_keeps_mirror_key_and_options(tmp_path: Path) -> None:
    assert add_backports(list(parse(ONE_LINE, ".list")), "bookworm", tmp_path) == 0
    written = (tmp_path / "promigence-backports.list").read_text().splitlines()[-1]
    assert written == (
        "deb [signed-by=/keys/archive.gpg arch=amd64] https://mirror.test/debian"
        " bookworm-backports main contrib  # ours"
    )


def test_a_replaced_folded_field_leaves_none_of_its_old_suites(tmp_path: Path) -> None:
    assert add_backports(list(parse(DEB822, ".sources")), "bookworm", tmp_path) == 0
    (entry,) = parse((tmp_path / "promigence-backports.sources").read_text(), ".sources")
    assert entry.suites == ("bookworm-backports",)
    assert "Signed-By: /keys/archive.gpg" in entry.text


def test_configured_backports_are_left_alone(tmp_path: Path) -> None:
    there = "deb https://mirror.test/debian bookworm-backports main\n"
    entries = list(parse(ONE_LINE + there, ".list"))
    assert add_backports(entries, "bookworm", tmp_path) == 0
    assert list(tmp_path.iterdir()) == []


def test_without_an_archive_entry_nothing_is_written(tmp_path: Path) -> None:
    assert add_backports([], "bookworm", tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_debian_base_of_another_release_has_updates_and_security(tmp_path: Path) -> None:
    entries = list(parse(DEB822.replace("bookworm", "trixie"), ".sources"))
    write_debian(entries, "trixie", "bookworm", tmp_path)
    suites = {path.name: _only(path).suites for path in tmp_path.iterdir()}
    assert suites == {
        "bookworm.sources": ("bookworm",),
        "bookworm-updates.sources": ("bookworm-updates",),
        "bookworm-security.sources": ("bookworm-security",),
    }
    assert _only(tmp_path / "bookworm-security.sources").uris == ("https://mirror.test/security",)


def test_another_distribution_leaves_the_choice_to_the_builder(tmp_path: Path) -> None:
    write_debian(list(parse(DEB822, ".sources")), None, "bookworm", tmp_path)
    assert list(tmp_path.iterdir()) == []


def _only(path: Path) -> Entry:
    (entry,) = parse(path.read_text(), path.suffix)
    return entry
