"""A tight limit of memory around one process, in whichever version of control groups this host has."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
# A group is busy until the kernel has reaped what was killed in it.
_EMPTY_WITHIN_S, _LOOK_S = 10.0, 0.05


@contextmanager
def tight(pid: int, room_mib: int) -> Iterator[Path]:
    """Inside, the process may take so much memory more, and is killed by the kernel at the next page.

    What it has is charged to where it was. Raises OSError where groups cannot be made.
    """
    parent, limit = _memory_parent(pid)
    group = parent / f"drill-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        (group / limit).write_text(str(room_mib << 20))
        (group / "cgroup.procs").write_text(str(pid))
        yield group
    finally:
        _remove(group, parent)


def _memory_parent(pid: int) -> tuple[Path, str]:
    """The process's own group in the first version; in the second, groups with processes have no children."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, kinds, group = line.split(":", 2)
        if "memory" in kinds.split(","):
            return _ROOT / "memory" / group.lstrip("/"), "memory.limit_in_bytes"
    (_ROOT / "cgroup.subtree_control").write_text("+memory")
    return _ROOT, "memory.max"


def _remove(group: Path, parent: Path) -> None:
    """Whoever lives in it goes back; then it is removed."""
    over = time.monotonic() + _EMPTY_WITHIN_S
    while True:
        for pid in (group / "cgroup.procs").read_text().split():
            try:
                (parent / "cgroup.procs").write_text(pid)
            except ProcessLookupError:
                continue
        try:
            group.rmdir()
            return
        except OSError:
            if time.monotonic() > over:
                raise
        time.sleep(_LOOK_S)
