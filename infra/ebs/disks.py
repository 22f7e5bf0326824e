"""What is done to an attached volume: looked for, given a filesystem, mounted, unmounted."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.errors import EnvironmentFault, FailureKind, Unavailable
from infra.ebs import devices
from infra.ebs.faults import unavailable

MOUNTS = Path("/proc/self/mountinfo")
# A filesystem of some GiB takes a second; a device that was detached by force may never answer.
TOOL_S = 120.0
_TOOLS = ("mke2fs", "mount", "umount")
_BLANK_BYTES = 1 << 20
# A bundle is a handful of files; more inodes would be so many blocks to fetch.
_INODES = 128
# ext4's super block: its magic number and its UUID (linux Documentation/filesystems/ext4/super.rst).
_SUPER_AT, _MAGIC_AT, _MAGIC, _UUID_AT = 1024, 0x38, b"\x53\xef", 0x68
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Device:
    """A block device of this host."""

    path: Path
    size_bytes: int


class Disks(Protocol):
    """Faults are EnvironmentFault(snapshot_unavailable) with what the system said."""

    def find(self, volume_id: str) -> Device | None:
        """The device of an attached volume, as soon as there is one."""
        ...

    def identity(self, device: Device) -> uuid.UUID | None:
        """Of the filesystem on it; None where there is none that is ours."""
        ...

    def is_blank(self, device: Device) -> bool:
        """Nothing was ever written where filesystems and partitions say what they are."""
        ...

    def make(self, device: Device, identity: uuid.UUID) -> None:
        """A new filesystem, whatever was there."""
        ...

    def mount(self, device: Device, point: Path, *, writable: bool) -> None:
        """At a directory that is made if need be."""
        ...

    def mounted(self) -> frozenset[Path]:
        """Every mount point of this host."""
        ...

    def unmount(self, point: Path) -> bool:
        """Nothing is mounted at a directory any more, and if it was only for that, it is gone; False while something
        uses it. Twice is safe.
        """
        ...


class Ext4Disks:
    """Real ones; `links` is where udev names volumes by their ids."""

    def __init__(self, links: Path) -> None:
        """Raises Unavailable where this process could mount nothing."""
        if os.geteuid() != 0:
            raise Unavailable(
                "not_root", "bundles on EBS are mounted: run the host's worker as root"
            )
        missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
        if missing:
            raise Unavailable("not_set_up", f"{', '.join(missing)}: not found; run `make setup`")
        self._links = links

    def find(self, volume_id: str) -> Device | None:
        path = devices.find(volume_id, self._links)
        try:
            return None if path is None else Device(path, devices.size_bytes(path))
        except OSError:
            return None  # on its way in or out

    def identity(self, device: Device) -> uuid.UUID | None:
        block = _read(device, _SUPER_AT, 1024)
        if block[_MAGIC_AT : _MAGIC_AT + 2] != _MAGIC:
            return None
        return uuid.UUID(bytes=block[_UUID_AT : _UUID_AT + 16])

    def is_blank(self, device: Device) -> bool:
        return not any(_read(device, 0, _BLANK_BYTES))

    def make(self, device: Device, identity: uuid.UUID) -> None:
        _run(make_argv(device.path, identity))

    def mount(self, device: Device, point: Path, *, writable: bool) -> None:
        try:
            point.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            kind = FailureKind.SNAPSHOT_UNAVAILABLE
            if error.errno == errno.ENOSPC:
                kind = FailureKind.HOST_DISK_FULL
            raise EnvironmentFault(kind, f"{point}: {error}", reason="disk_failed") from error
        try:
            _run(mount_argv(device.path, point, writable=writable))
        except EnvironmentFault:
            self.unmount(point)
            raise

    def mounted(self) -> frozenset[Path]:
        lines = MOUNTS.read_text().splitlines()
        return frozenset(Path(_unescaped(line.split()[4])) for line in lines)

    def unmount(self, point: Path) -> bool:
        while point in self.mounted():
            try:
                _run(["umount", str(point)])
            except EnvironmentFault:
                if point in self.mounted():
                    return False
        if point.is_dir() and not any(point.iterdir()):
            point.rmdir()
        return True


def make_argv(device: Path, identity: uuid.UUID) -> list[str]:
    """No journal, for it is written once; nothing is left for the kernel to finish at the first mount, and no room kept
    for root.
    """
    extended = f"lazy_itable_init=0,nodiscard,root_owner=0:0,hash_seed={identity}"
    return [
        *("mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal,^resize_inode", "-m", "0"),
        *("-b", "4096", "-N", str(_INODES), "-U", str(identity), "-L", "promigence"),
        *("-E", extended, str(device)),
    ]


def mount_argv(device: Path, point: Path, *, writable: bool) -> list[str]:
    """What is stored is never written again, not even by a recovery, and nothing on it is run or is a device."""
    options = "rw" if writable else "ro,noload"
    return [
        *("mount", "-t", "ext4", "-o", f"{options},nosuid,nodev,noexec,noatime"),
        *(str(device), str(point)),
    ]


def _run(argv: list[str]) -> None:
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True, timeout=TOOL_S)
    except subprocess.TimeoutExpired as error:
        raise unavailable(
            "disk_failed", f"{argv[0]} did not end in {TOOL_S:.0f} s", command=" ".join(argv)
        ) from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip()[-500:]
        raise unavailable(
            "disk_failed", f"{argv[0]} failed: {said}", command=" ".join(argv), output=said
        ) from error


def _read(device: Device, start: int, length: int) -> bytes:
    try:
        with device.path.open("rb", buffering=0) as source:
            return os.pread(source.fileno(), length, start)
    except OSError as error:
        raise unavailable(
            "disk_failed", f"{device.path} cannot be read: {error}", device=str(device.path)
        ) from error


def _unescaped(word: str) -> str:
    """Blanks and backslashes are octal in this file (proc_pid_mountinfo(5))."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), word)
