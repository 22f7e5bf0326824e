"""A volume whose bytes come no faster than is said, and that counts them: a file under a loop device, with ext4 on it.

The limit is the block layer's own (blkio of control groups, version 1), set for this device alone, so it holds for
whoever reads: a fork's faults, the kernel's read-ahead, a check. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

# What Linux reads ahead on a disk unless told otherwise; hosts that say more read more around each fault.
READ_AHEAD_KIB = 128
_LIMITS = Path("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device")
_SECTOR_BYTES = 512
_STEP_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a device has brought: reads as it was asked for them, after neighbours were joined, and their bytes."""

    reads: int
    bytes: int

    def since(self, before: Traffic) -> Traffic:
        """The difference."""
        return Traffic(self.reads - before.reads, self.bytes - before.bytes)


@dataclass(frozen=True, slots=True)
class Volume:
    """A device, and where its file system is mounted."""

    device: Path
    folder: Path

    @property
    def sysfs(self) -> Path:
        """What the kernel says of it."""
        return Path("/sys/class/block") / self.device.name

    def traffic(self) -> Traffic:
        """Since the device is there."""
        words = (self.sysfs / "stat").read_text().split()
        return Traffic(int(words[0]), int(words[2]) * _SECTOR_BYTES)

    def read_ahead(self, kib: int) -> None:
        """How far the kernel reads ahead on it, for files that are opened from now on."""
        (self.sysfs / "queue" / "read_ahead_kb").write_text(str(kib))

    def cool(self) -> None:
        """Mount it anew, with nothing of it in this host's memory."""
        if os.path.ismount(self.folder):
            _run("umount", self.folder)
        _run("blockdev", "--flushbufs", self.device)
        _run("mount", "-o", "ro,noload,noatime", self.device, self.folder)

    @contextmanager
    def limited(self, mib_per_second: int) -> Iterator[None]:
        """Inside, nothing is read from it faster than this."""
        number = (self.sysfs / "dev").read_text().strip()
        _LIMITS.write_text(f"{number} {mib_per_second << 20}")
        try:
            yield
        finally:
            _LIMITS.write_text(f"{number} 0")


@contextmanager
def volume(root: Path, size_mib: int) -> Iterator[Volume]:
    """An empty one, mounted to be written; device, mount and file are gone at the end."""
    if not _LIMITS.exists():
        raise RuntimeError(
            "no volume can be slowed down here: blkio of control groups version 1 is not mounted"
        )
    root.mkdir()
    file, folder = root / "volume.img", root / "mounted"
    folder.mkdir()
    with ExitStack() as stack:
        stack.callback(_remove, root, folder)
        with file.open("wb") as opened:
            opened.truncate(size_mib << 20)
        _run("mkfs.ext4", "-q", "-O", "^has_journal", file)
        device = Path(_run("losetup", "--find", "--show", file))
        stack.callback(_run, "losetup", "--detach", device)
        made = Volume(device, folder)
        made.read_ahead(READ_AHEAD_KIB)
        _run("mount", "-o", "noatime", device, folder)
        stack.callback(_run, "umount", folder)
        yield made


def _remove(root: Path, folder: Path) -> None:
    """Unless it is mounted still: what is in there is not ours alone."""
    if not os.path.ismount(folder):
        shutil.rmtree(root)


def _run(*argv: str | Path) -> str:
    done = subprocess.run(
        tuple(map(str, argv)), capture_output=True, text=True, timeout=_STEP_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]}: {done.stderr.strip()}")
    return done.stdout.strip()
