"""A folder as a raw ext4 root disk."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

BLOCK_BYTES = 4096
BYTES_PER_INODE = 8192
INODE_BYTES = 256
MIB = 1024 * 1024
TIMEOUT_S = 600


def make_root_disk(tree: Path, disk: Path, headroom_mib: int, identity: uuid.UUID) -> None:
    """Write `tree` to the new sparse file `disk`: as small as it goes, with `headroom_mib` free.

    Raises subprocess.CalledProcessError or TimeoutExpired, each with the tool's output.
    """
    size_mib = disk_size_mib(tree_bytes(tree), headroom_mib)
    for argv in (
        mke2fs_argv(tree, disk, size_mib, identity),
        # The kernel would zero inode tables in the background, in each fork anew.
        ["tune2fs", "-E", "mount_opts=noinit_itable", str(disk)],
        ["e2fsck", "-f", "-n", str(disk)],
    ):
        subprocess.run(argv, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)


def mke2fs_argv(tree: Path, disk: Path, size_mib: int, identity: uuid.UUID) -> list[str]:
    """No journal: a root disk lives and dies with its machine's memory, so it is never recovered, and each
    journalled block would be one more in every overlay. Small disks get 1 KiB blocks by default: not ours, they grow.
    """
    extended = f"lazy_itable_init=0,root_owner=0:0,hash_seed={identity}"
    return [
        *("mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0"),
        *("-b", str(BLOCK_BYTES), "-i", str(BYTES_PER_INODE), "-I", str(INODE_BYTES)),
        *("-U", str(identity), "-L", "root", "-E", extended),
        *("-d", str(tree), str(disk), f"{size_mib}M"),
    ]


def disk_size_mib(content_bytes: int, headroom_mib: int) -> int:
    """Room for the content, 2 % for its extents and bitmaps, the inode tables, and the headroom."""
    used = content_bytes * 1.02 + headroom_mib * MIB
    with_inodes = used / (1 - INODE_BYTES / BYTES_PER_INODE)
    return int(with_inodes / MIB) + 1


def tree_bytes(tree: Path) -> int:
    """What the files and folders of a tree take in whole blocks; a hard-linked file counts once."""
    seen: set[tuple[int, int]] = set()
    blocks = 0
    for folder, _, names in os.walk(tree):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            status = path.lstat()
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                blocks += 1 + (status.st_size - 1) // BLOCK_BYTES
    return blocks * BLOCK_BYTES
