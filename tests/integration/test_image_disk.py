"""A root disk as the real tools make it. It is read back with debugfs: no mount, no loop device."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path

import pytest

from infra.image.build import build
from infra.image.disk import make_root_disk
from infra.image.recipes import BUSYBOX

IDENTITY = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.fixture
def busybox(tmp_path: Path) -> Path:
    """A program that answers as busybox does to the builder's one question."""
    program = tmp_path / "busybox"
    program.write_text("#!/bin/sh\nprintf 'busybox\\nsh\\nls\\n'\n")
    program.chmod(0o755)
    return program


def test_a_tree_is_found_again_on_its_disk(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc/marker").write_text("here\n")
    make_root_disk(tree, tmp_path / "root.img", 4, IDENTITY)
    assert _debugfs(tmp_path / "root.img", "cat /etc/marker") == "here\n"


def test_a_disk_has_no_journal_our_block_size_and_room(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    make_root_disk(tmp_path / "tree", tmp_path / "root.img", 8, IDENTITY)
    stats = _debugfs(tmp_path / "root.img", "stats")
    facts = {
        k.strip(): v.strip() for k, _, v in (line.partition(":") for line in stats.splitlines())
    }
    assert "has_journal" not in facts["Filesystem features"]
    assert facts["Mount options"] == "noinit_itable"
    assert facts["Filesystem UUID"] == str(IDENTITY)
    assert int(facts["Free blocks"]) * int(facts["Block size"]) >= 8 * 1024 * 1024


def test_a_busybox_image_is_built_once_and_whole(tmp_path: Path, busybox: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    disk = build(BUSYBOX, images, busybox, (), None)
    assert disk == images / "busybox" / BUSYBOX.address / "root.img"
    assert 'Fast link dest: "busybox"' in _debugfs(disk, "stat /bin/sh")
    assert "root:x:0:0" in _debugfs(disk, "cat /etc/passwd")
    before = disk.stat().st_mtime_ns
    assert build(BUSYBOX, images, Path("gone"), (), None) == disk
    assert disk.stat().st_mtime_ns == before
    assert [path.name for path in images.iterdir()] == ["busybox"]


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, busybox: Path) -> None:
    busybox.write_text("#!/bin/sh\nexit 7\n")
    images = tmp_path / "images"
    images.mkdir()
    with pytest.raises(subprocess.CalledProcessError):
        build(BUSYBOX, images, busybox, (), None)
    assert list((images / "busybox").iterdir()) == []
    assert [path.name for path in images.iterdir()] == ["busybox"]


def _debugfs(disk: Path, request: str) -> str:
    argv = ["debugfs", "-R", request, str(disk)]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=30).stdout
