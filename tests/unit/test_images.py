"""Base images: their content address, the commands that make them, and the port over what is built."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import BadRequest
from infra import wiring
from infra.image.build import mmdebstrap_argv
from infra.image.disk import BLOCK_BYTES, disk_size_mib, tree_bytes
from infra.image.images import LocalImages
from infra.image.recipes import DEBIAN_12, RECIPES
from infra.settings import Settings


def test_the_address_changes_with_the_recipe() -> None:
    assert DEBIAN_12.address == replace(DEBIAN_12).address
    changed = (
        replace(DEBIAN_12, packages=(*DEBIAN_12.packages, "vim")),
        replace(DEBIAN_12, suite="trixie"),
        replace(DEBIAN_12, headroom_mib=65),
    )
    assert len({DEBIAN_12.address, *(recipe.address for recipe in changed)}) == 4


def test_the_debian_command_takes_this_machines_sources_and_leaves_no_apt_options() -> None:
    argv = mmdebstrap_argv(Path("tree"), DEBIAN_12, (Path("a.sources"),), Path("apt.conf"))
    assert argv[-3:] == ["bookworm", "tree", "a.sources"]
    assert f"--include={','.join(DEBIAN_12.packages)}" in argv
    copied = next(part for part in argv if part.startswith("--setup-hook=")).split()[-1]
    removed = next(part for part in argv if part.startswith("--customize-hook=")).split()[-1]
    assert copied == removed
    assert not [
        part for part in mmdebstrap_argv(Path("tree"), DEBIAN_12, (), None) if "hook" in part
    ]


def test_a_trees_size_counts_whole_blocks_and_hard_links_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * (BLOCK_BYTES + 1))
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "empty").touch()
    folder_blocks = -(-tmp_path.stat().st_size // BLOCK_BYTES)
    assert tree_bytes(tmp_path) == (folder_blocks + 2) * BLOCK_BYTES


def test_a_disk_holds_its_content_and_the_headroom() -> None:
    assert disk_size_mib(100 * 1024 * 1024, 64) >= 164


def test_only_images_of_the_current_recipe_are_known(tmp_path: Path) -> None:
    images = LocalImages(tmp_path, tmp_path / "guest")
    assert images.names() == ()
    _built(tmp_path, "busybox", RECIPES["busybox"].address)
    _built(tmp_path, "debian-12", "of-an-older-recipe")
    assert images.names() == ("busybox",)


def test_a_boot_image_joins_disk_kernel_and_tools(tmp_path: Path) -> None:
    disk = _built(tmp_path, "busybox", RECIPES["busybox"].address)
    image = LocalImages(tmp_path, tmp_path / "guest").boot_image("busybox")
    assert image.root_disk == disk
    parts = {path.relative_to(tmp_path / "guest").name for path in (image.kernel, image.initramfs)}
    assert parts == {"vmlinuz", "initramfs.cpio"}
    assert image.tools_disk == tmp_path / "guest" / "tools.img"


def test_what_a_boot_image_is_made_of_is_told_by_content(tmp_path: Path) -> None:
    """An image that is built anew by the same recipe has newer packages in it, and says so."""
    disk = _built(tmp_path, "busybox", RECIPES["busybox"].address)
    (tmp_path / "guest").mkdir()
    for name in ("vmlinuz", "initramfs.cpio"):
        (tmp_path / "guest" / name).write_text(name)
    images = LocalImages(tmp_path, tmp_path / "guest")
    before = dict(images.boot_image("busybox").made_of)
    assert before == {
        "image": hashlib.sha256(b"").hexdigest(),
        "kernel": hashlib.sha256(b"vmlinuz").hexdigest(),
        "initramfs": hashlib.sha256(b"initramfs.cpio").hexdigest(),
        "tools": "missing",
    }
    disk.write_text("newer packages")
    after = dict(images.boot_image("busybox").made_of)
    assert after == {**before, "image": hashlib.sha256(b"newer packages").hexdigest()}


def test_a_control_plane_without_images_knows_those_that_its_hosts_have(tmp_path: Path) -> None:
    apart = Settings(dir=tmp_path, products=tmp_path, parts=("api",))
    with wiring.control(apart) as control:
        assert control.ports.images.names() == ("busybox", "debian-12")
        with pytest.raises(BadRequest, match="on hosts"):
            control.ports.images.boot_image("busybox")
    with wiring.control(Settings(dir=tmp_path, products=tmp_path)) as control:
        assert control.ports.images.names() == ()


def test_an_unknown_image_is_refused_with_the_names_there_are(tmp_path: Path) -> None:
    _built(tmp_path, "busybox", RECIPES["busybox"].address)
    with pytest.raises(BadRequest, match="there are: busybox") as refusal:
        LocalImages(tmp_path, tmp_path / "guest").boot_image("debian-13")
    assert refusal.value.code == "unknown_image"


def _built(images: Path, name: str, address: str) -> Path:
    disk = images / name / address / "root.img"
    disk.parent.mkdir(parents=True)
    disk.touch()
    return disk
