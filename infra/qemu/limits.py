"""A memory limit for each machine, by a control group of its own: systemd's where that runs the host (`scopes.py`),
else one that we make, where the host lets us.
"""

from __future__ import annotations

import contextlib
import os
from contextlib import ExitStack
from pathlib import Path

from app.domain.machine import Shape
from infra.qemu import scopes

PARENT = Path("/sys/fs/cgroup/promigence")

# QEMU's own memory beside the guest's: code, translated code (TCG), device buffers.
OVERHEAD_MIB = 192


def available(parent: Path = PARENT) -> bool:
    """Whether machines have a memory limit here: by scopes, or by groups under `parent`, which is made then."""
    if scopes.served():
        return True
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
    """Make a machine's group; the descriptor to enter it by, open until the stack ends.

    None without groups, and where a scope is the machine's group.
    """
    if scopes.served() or not available(parent):
        return None
    group = parent / name
    group.mkdir(exist_ok=True)
    (group / "memory.max").write_text(str(_limit_bytes(shape)))
    (group / "memory.oom.group").write_text("1")
    fd = os.open(group / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    return fd


def scoped(name: str, shape: Shape) -> tuple[str, ...]:
    """The words before the command that starts this machine; none where no scope is to be made of it."""
    return scopes.words(name, _limit_bytes(shape)) if scopes.served() else ()


def kills_of(name: str, parent: Path = PARENT) -> Path:
    """The file in which the kernel counts what it killed in this machine's group; it may be gone with its machine."""
    group = scopes.group_of(name) if scopes.served() else parent / name
    return group / "memory.events"


def clear(name: str, parent: Path = PARENT) -> None:
    """Remove the group of a dead machine, where we made it: systemd's go by themselves. Twice is safe."""
    with contextlib.suppress(OSError):
        (parent / name).rmdir()


def _limit_bytes(shape: Shape) -> int:
    return (shape.memory_mib + OVERHEAD_MIB) << 20
