"""A machine's disks: a private copy that may grow, the id that tells a disk from all others, an empty overlay."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

from app.domain.machine import Shape
from app.errors import EnvironmentFault, FailureKind

# The ext4 superblock's volume name: 16 bytes at 1024 + 0x78. It can be set without touching anything else on the disk,
# and be read by whoever sees the disk's first 2 KiB.
DISK_ID_OFFSET = 1024 + 0x78
DISK_ID_BYTES = 16
_GIB = 1 << 30
_STEP_TIMEOUT_S = 120.0
# The tools of ext4 are where a plain user's path does not lead.
_TOOLS = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def private_copy(source: Path, target: Path) -> None:
    """Copy a file, by reference where the file system can, with its holes kept."""
    _run("cp", "--reflink=auto", "--sparse=always", "--no-preserve=all", str(source), str(target))


def grow(disk: Path, shape: Shape) -> None:
    """Make a raw ext4 disk as large as the shape says. Raises EnvironmentFault(restore_failed) if it is larger."""
    wanted = shape.disk_gib * _GIB
    size = disk.stat().st_size
    if size > wanted:
        raise EnvironmentFault(
            FailureKind.RESTORE_FAILED,
            f"the image's root disk has {size >> 20} MiB; the shape allows {wanted >> 20} MiB",
        )
    # resize2fs wants a check first; 1 means that the check corrected something.
    _run("e2fsck", "-f", "-p", str(disk), allowed=(0, 1))
    if size < wanted:
        with disk.open("r+b") as file:
            file.truncate(wanted)
        _run("resize2fs", str(disk))


def give_id(disk: Path) -> str:
    """Write a new random id on an ext4 disk and return it: 16 lower-case hex digits."""
    disk_id = secrets.token_hex(DISK_ID_BYTES // 2)
    _run("tune2fs", "-L", disk_id, str(disk))
    return disk_id


def make_overlay(overlay: Path, size_bytes: int) -> None:
    """An empty qcow2 disk that names no backing file: what it lies upon is said when it is opened."""
    _run("qemu-img", "create", "-q", "-f", "qcow2", str(overlay), str(size_bytes))


def _run(*argv: str, allowed: tuple[int, ...] = (0,)) -> None:
    try:
        done = subprocess.run(
            argv, capture_output=True, timeout=_STEP_TIMEOUT_S, check=False, env=_TOOLS
        )
    except FileNotFoundError as error:
        raise EnvironmentFault(
            FailureKind.RESTORE_FAILED, f"{argv[0]} is not installed here: run `make setup`"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault(
            FailureKind.RESTORE_FAILED, f"{argv[0]} took more than {_STEP_TIMEOUT_S:.0f} s"
        ) from error
    if done.returncode in allowed:
        return
    said = (done.stderr or done.stdout).decode(errors="replace").strip()[-500:]
    kind = FailureKind.HOST_DISK_FULL if "No space left" in said else FailureKind.RESTORE_FAILED
    raise EnvironmentFault(kind, f"{argv[0]}: {said}", exit_code=done.returncode)
