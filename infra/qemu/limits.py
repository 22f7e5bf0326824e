"""A memory limit for each machine, by a control group of its own, where the host lets us make one."""

from __future__ import annotations

import contextlib
import os
from contextlib import ExitStack
from pathlib import Path

from app.domain.machine import Shape

PARENT = Path("/sys/fs/cgroup/promigence")

# QEMU's own memory beside the guest's: code, translated code (TCG), device buffers.
OVERHEAD_MIB = 192


def available(parent: Path = PARENT) -> bool:
    """Whether groups with a memory limit can be made under `parent`; makes `parent` if so."""
    try:
        # Absent from a plain directory and from cgroup1, where the next line would make folders that limit nothing.
        if "memory" not in (parent.parent / "cgroup.controllers").read_text().split():
            return False
        (parent.parent / "cgroup.subtree_control").write_text("+memory")
        parent.mkdir(exist_ok=True)
        (parent / "cgroup.subtree_control").write_text("+memory")
    except OSError:
        return False
    return True


def enter(stack: ExitStack, name: str, shape: Shape, parent: Path = PARENT) -> int | None:
    """Make a machine's group; the descriptor to enter it by, open until the stack ends. None without groups."""
    if not available(parent):
        return None
    group = parent / name
    group.mkdir(exist_ok=True)
    (group / "memory.max").write_text(str((shape.memory_mib + OVERHEAD_MIB) << 20))
    (group / "memory.oom.group").write_text("1")
    fd = os.open(group / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    return fd


def clear(name: str, parent: Path = PARENT) -> None:
    """Remove the group of a dead machine. Twice is safe."""
    with contextlib.suppress(OSError):
        (parent / name).rmdir()
