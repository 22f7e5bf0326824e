"""Mounts, loop devices and control groups: what the kernel keeps for whoever made it, long after that is gone."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from app.domain.leak import Leak, LeakKind, Trace
from infra.leaks.paths import name_below

MOUNTS = Path("/proc/self/mountinfo")
LOOPS = Path("/sys/block")
GROUPS = Path("/sys/fs/cgroup/promigence")
# linux/loop.h
_LOOP_CLR_FD = 0x4C01
_ESCAPED = re.compile(r"\\([0-7]{3})")
_LIBC = ctypes.CDLL(None, use_errno=True)

Roots = tuple[Path, ...]


def mounts(roots: Roots) -> Iterator[Trace]:
    """Mounts below these directories."""
    for line in MOUNTS.read_text().splitlines():
        point = Path(_unescaped(line.split()[4]))
        owner = name_below(roots, point)
        if owner is not None:
            yield Trace(Leak(LeakKind.MOUNT, str(point)), owner)


def unmount(roots: Roots, point: str) -> bool:
    """Take one mount away, the newest if there are several at one point; False while something uses it."""
    if name_below(roots, Path(point)) is None:
        return False
    return bool(_LIBC.umount2(os.fsencode(point), 0) == 0)


def loops(roots: Roots) -> Iterator[Trace]:
    """Loop devices on files below these directories."""
    for backing in LOOPS.glob("loop*/loop/backing_file"):
        path = _backing(backing)
        owner = None if path is None else name_below(roots, path)
        if owner is not None:
            yield Trace(Leak(LeakKind.LOOP_DEVICE, backing.parts[-3], f"on {path}"), owner)


def detach(roots: Roots, leak: Leak) -> bool:
    """Detach one, if it is on that very file still. One that is mounted goes when its mount does."""
    path = _backing(LOOPS / leak.name / "loop" / "backing_file")
    if path is None or name_below(roots, path) is None or leak.detail != f"on {path}":
        return False
    try:
        device = os.open(f"/dev/{leak.name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.ioctl(device, _LOOP_CLR_FD)
    except OSError:
        return False
    finally:
        os.close(device)
    return True


def groups(parent: Path = GROUPS) -> Iterator[Trace]:
    """Groups of machines, of every stack of this host, that no process is in."""
    with suppress(FileNotFoundError):
        for group in parent.iterdir():
            if group.is_dir() and _is_empty(group):
                yield Trace(Leak(LeakKind.CONTROL_GROUP, group.name), owner=group.name)


def remove_group(name: str, parent: Path = GROUPS) -> bool:
    """Remove an empty group; the kernel refuses one that is in use."""
    try:
        (parent / name).rmdir()
    except OSError:
        return False
    return True


def _is_empty(group: Path) -> bool:
    try:
        return (group / "cgroup.procs").read_text() == ""
    except OSError:
        return False  # gone meanwhile


def _backing(file: Path) -> Path | None:
    try:
        return Path(file.read_text().rstrip("\n").removesuffix(" (deleted)"))
    except OSError:
        return None  # detached meanwhile


def _unescaped(word: str) -> str:
    """Blanks and backslashes are octal in this file (proc_pid_mountinfo(5))."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), word)
