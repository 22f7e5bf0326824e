"""What goes into an initramfs: the archive's form, and every module after those that it needs."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from guest import build


def module(folder: Path, name: str, *depends: str, packed: bool = True) -> None:
    data = b"\x7fELF\0depends=" + ",".join(depends).encode() + b"\0name=" + name.encode() + b"\0"
    path = folder / "kernel" / f"{name}.ko{'.xz' if packed else ''}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(data) if packed else data)


def built_in(folder: Path, *names: str) -> None:
    lines = [f"kernel/drivers/{name}.ko" for name in names]
    (folder / "modules.builtin").write_text("\n".join(lines))


def test_a_module_comes_after_what_it_needs_and_once(tmp_path: Path) -> None:
    module(tmp_path, "virtio_blk", "virtio_ring")
    module(tmp_path, "virtio_ring", "virtio", packed=False)
    module(tmp_path, "virtio")
    module(tmp_path, "ext4", "mbcache", "crc16")
    module(tmp_path, "mbcache")
    module(tmp_path, "pvpanic-pci", "pvpanic")
    built_in(tmp_path, "virtio_pci", "virtio-console", "crc16", "pvpanic")
    names = [name for name, _ in build._modules(tmp_path)]
    assert names == [
        f"{name}.ko"
        for name in ("virtio", "virtio_ring", "virtio_blk", "mbcache", "ext4", "pvpanic_pci")
    ]
    assert all(data.startswith(b"\x7fELF") for _, data in build._modules(tmp_path))


def test_a_kernel_without_what_a_machine_needs_is_refused(tmp_path: Path) -> None:
    built_in(tmp_path, "virtio_pci", "virtio_console", "ext4")
    with pytest.raises(SystemExit, match="this kernel has no virtio_blk"):
        build._modules(tmp_path)


def test_an_entry_has_the_form_that_the_kernel_reads() -> None:
    entry = build._entry("dev/console", 0o020600, device=(5, 1))
    assert entry[:6] == b"070701"
    fields = [int(entry[6 + 8 * number : 14 + 8 * number], 16) for number in range(13)]
    assert fields[1] == 0o020600
    assert fields[6] == 0
    assert fields[9:12] == [5, 1, len("dev/console") + 1]
    assert entry[110:122] == b"dev/console\0"
    assert len(entry) % 4 == 0


@pytest.mark.parametrize("size", range(5))
def test_an_entrys_data_is_aligned(size: int) -> None:
    data = b"x" * size
    entry = build._entry("init", 0o100755, data)
    start = len(build._entry("init", 0o100755))
    assert entry[start : start + size] == data
    assert len(entry) % 4 == 0
    assert int(entry[6 + 8 * 6 : 14 + 8 * 6], 16) == size
