"""The storage of the rehearsal's zone: a volume is a sparse file, a snapshot of it shares its blocks, and to
attach one is to give a loop device its file.

The files lie in an XFS file system of their own, itself in one file; nothing is known of them but what the kernel says,
so that a rehearsal that was killed is cleaned up by the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_GIB = 1 << 30
# The zone's file is sparse, and blocks that are freed in it become holes again.
_ZONE_GIB = 16
# ioctl_ficlonerange(2): one file gets the blocks of another, copied when either is written.
_FICLONE = 0x40049409
_BLOCKS = Path("/sys/block")
_TOOL_S = 30


class StorageBusy(Exception):
    """Something still uses what was to be taken away."""


class Storage:
    """Volumes and snapshots under a folder; `opened` makes one. Not for two threads at once."""

    def __init__(self, folder: Path) -> None:
        self._volumes = folder / "volumes"
        self._snapshots = folder / "snapshots"
        for each in (self._volumes, self._snapshots):
            each.mkdir()

    def create(self, volume_id: str, size_gib: int, snapshot_id: str | None) -> None:
        """A volume of zeros, or one with the bytes of a snapshot."""
        path = self._volumes / volume_id
        if snapshot_id is None:
            path.touch(mode=0o600)
        else:
            _clone(self._snapshots / snapshot_id, path)
        os.truncate(path, size_gib * _GIB)

    def snapshot(self, volume_id: str, snapshot_id: str) -> None:
        """Keep a volume as its last write left it; what its host has not written back yet is not in it."""
        _clone(self._volumes / volume_id, self._snapshots / snapshot_id)

    def attach(self, volume_id: str, devices: Path) -> str:
        """Give it a device, and a link in its host's folder as udev names an EBS volume on Nitro; return the device."""
        devices.mkdir(parents=True, exist_ok=True)
        options = ("--find", "--show", "--direct-io=on")
        device = _run("losetup", *options, str(self._volumes / volume_id)).strip()
        (devices / link_name(volume_id)).symlink_to(device)
        return device

    def detach(self, volume_id: str, devices: Path) -> None:
        """Take both away again. Silent when it is not attached. Raises StorageBusy while it is mounted."""
        if self.mounted(volume_id):
            raise StorageBusy(f"{volume_id} is mounted")
        (devices / link_name(volume_id)).unlink(missing_ok=True)
        device = self.attached().get(volume_id)
        if device is not None:
            _run("losetup", "--detach", device)

    def pull(self, volume_id: str, devices: Path) -> None:
        """Detach it though it is mounted, as from a machine that has lost its power."""
        device = self.attached().get(volume_id)
        for where in reversed(mounts_of(device) if device else []):
            _unmount(where)
        self.detach(volume_id, devices)

    def delete(self, volume_id: str) -> None:
        """Silent when there is none."""
        (self._volumes / volume_id).unlink(missing_ok=True)

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Volumes that were made from it keep their bytes. Silent when there is none."""
        (self._snapshots / snapshot_id).unlink(missing_ok=True)

    def attached(self) -> dict[str, str]:
        """The device of each volume that has one, as the kernel says it."""
        return {file.name: device for device, file in loops(self._volumes)}

    def mounted(self, volume_id: str) -> bool:
        """Whether a file system on it is in use."""
        device = self.attached().get(volume_id)
        return device is not None and bool(mounts_of(device))

    def volumes(self) -> frozenset[str]:
        """Ids of all that are there."""
        return frozenset(path.name for path in self._volumes.iterdir())

    def snapshots(self) -> frozenset[str]:
        """Ids of all that are there."""
        return frozenset(path.name for path in self._snapshots.iterdir())


@contextmanager
def opened(folder: Path) -> Iterator[Storage]:
    """Storage in a folder of its own, which is gone at the end, with all that was made of it: mounts and devices too.

    What an earlier one left there goes first. Raises StorageBusy where a process holds a mount of its volumes.
    """
    folder = folder.resolve()  # the kernel names files whole
    _clear(folder)
    folder.mkdir(parents=True, mode=0o700)
    try:
        image, root = folder / "zone.xfs", folder / "zone"
        image.touch(mode=0o600)
        os.truncate(image, _ZONE_GIB * _GIB)
        _run("mkfs.xfs", "-q", "-m", "reflink=1", str(image))
        root.mkdir()
        _run("mount", "-t", "xfs", "-o", "loop,discard", str(image), str(root))
        yield Storage(root)
    finally:
        _clear(folder)


def link_name(volume_id: str) -> str:
    """What udev calls the device of a volume on a Nitro instance: its NVMe model and serial."""
    return f"nvme-Amazon_Elastic_Block_Store_{volume_id.replace('-', '')}"


def loops(folder: Path) -> Iterator[tuple[str, Path]]:
    """Loop devices of the files below a folder, and their files."""
    for backing in _BLOCKS.glob("loop*/loop/backing_file"):
        with suppress(OSError):  # let go of meanwhile
            file = Path(backing.read_text().strip().removesuffix(" (deleted)"))
            if file.is_relative_to(folder):
                yield f"/dev/{backing.parent.parent.name}", file


def mounts_of(device: str) -> list[Path]:
    """Where a device is mounted, in the order of mounting."""
    try:
        number = (_BLOCKS / Path(device).name / "dev").read_text().strip()
    except FileNotFoundError:
        return []
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    fields = (line.split() for line in lines)
    return [Path(found[4]) for found in fields if found[2] == number]


def _clear(folder: Path) -> None:
    """Whatever of a folder is mounted or has a device: volumes first, then the file system that they lie in."""
    for level in (folder / "zone", folder):
        for device, _ in tuple(loops(level)):
            for where in reversed(mounts_of(device)):
                _unmount(where)
            # A mount with a device of its own has taken it along.
            with suppress(subprocess.CalledProcessError):
                _run("losetup", "--detach", device)
    if folder.exists():
        shutil.rmtree(folder)


def _unmount(where: Path) -> None:
    try:
        _run("umount", str(where))
    except subprocess.CalledProcessError as error:
        raise StorageBusy(f"{where}: {error.stderr.strip()}") from error


def _clone(source: Path, into: Path) -> None:
    with source.open("rb") as old, into.open("xb") as new:
        fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=_TOOL_S)
    return done.stdout
