from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest

from promigence import BadDefinition
from promigence._tar import MTIME, pack


def make_tree(root: Path, order: list[str]) -> Path:
    """The same tree whatever the order of its making."""
    root.mkdir()
    for name in order:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
        path.chmod(0o755 if name.endswith(".sh") else 0o640)
    (root / "empty").mkdir(exist_ok=True)
    (root / "link").symlink_to("a/file")
    (root / "dangling").symlink_to("/nowhere/at/all")
    for directory in (root / "a", root / "empty"):
        directory.chmod(0o755)
    return root


def members(tar: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(tar, "r:") as archive:
        return {member.name: member for member in archive.getmembers()}


def test_the_same_content_makes_the_same_bytes(tmp_path: Path) -> None:
    names = ["b.sh", "a/file", "a-b", "a/" + "n" * 180]
    first = make_tree(tmp_path / "first", names)
    second = make_tree(tmp_path / "second", names[::-1])
    os.utime(second / "b.sh", (1, 1))
    hashes = [pack(tree, tmp_path / f"{tree.name}.tar") for tree in (first, second)]
    assert hashes[0] == hashes[1]
    assert hashes[0] == hashlib.sha256((tmp_path / "first.tar").read_bytes()).hexdigest()


def test_other_content_makes_other_bytes(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", ["a/file"])
    before = pack(tree, tmp_path / "before.tar")
    (tree / "a/file").chmod(0o755)
    assert pack(tree, tmp_path / "after.tar") != before


def test_what_is_inside(tmp_path: Path) -> None:
    long = "n" * 180
    tree = make_tree(tmp_path / "tree", ["run.sh", f"a/{long}", "a/file"])
    (tree / "run.sh").chmod(0o6755)
    pack(tree, tmp_path / "out.tar")
    seen = members(tmp_path / "out.tar")
    assert list(seen) == ["a", "a/file", f"a/{long}", "dangling", "empty", "link", "run.sh"]
    assert {(one.uid, one.gid, one.uname, one.gname, one.mtime) for one in seen.values()} == {
        (0, 0, "", "", MTIME)
    }
    assert seen["run.sh"].mode == 0o755
    assert seen["a/file"].mode == 0o640
    assert seen["link"].issym()
    assert seen["link"].linkname == "a/file"
    assert seen["dangling"].linkname == "/nowhere/at/all"
    assert seen["empty"].isdir()


def test_unpacked_it_is_the_tree_again(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", ["a/file", "b.sh"])
    os.link(tree / "b.sh", tree / "hard")
    pack(tree, tmp_path / "out.tar")
    again = tmp_path / "again"
    again.mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "out.tar", "-C", again], check=True, timeout=30)
    assert (again / "a/file").read_text() == "content of a/file"
    assert (again / "link").read_text() == "content of a/file"
    assert (again / "hard").read_text() == "content of b.sh"
    assert (again / "hard").stat().st_nlink == 1


def test_one_file_goes_under_the_name_that_it_has_in_the_guest(tmp_path: Path) -> None:
    (tmp_path / "local.txt").write_text("x")
    pack(tmp_path / "local.txt", tmp_path / "out.tar", name="guest.txt")
    assert list(members(tmp_path / "out.tar")) == ["guest.txt"]


def test_names_in_any_bytes_survive(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / os.fsdecode(b"caf\xe9")).write_text("x")
    pack(tree, tmp_path / "out.tar")
    assert [os.fsencode(name) for name in members(tmp_path / "out.tar")] == [b"caf\xe9"]


def test_nothing_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadDefinition, match=r"there is no .*nothing"):
        pack(tmp_path / "nothing", tmp_path / "out.tar")


def test_what_no_guest_can_be_given_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    monkeypatch.chdir(tree)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(BadDefinition, match="socket is neither a file, a directory nor a link"):
            pack(tree, tmp_path / "out.tar")
