"""A machine as a scope of systemd's own, where systemd runs this host.

There control groups are systemd's: one that we made beside its own could be taken apart by it, and one below the
worker's unit would end with that. A scope is of neither. What restarts, kills or is killed of the worker's unit does
not touch it; `systemctl stop promigence-machines.slice` ends all machines of the host.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

SLICE = "promigence-machines.slice"
# sd_booted(3): there while systemd is this system's first process, and not in a container of its own.
BOOTED = Path("/run/systemd/system")
_GROUPS = Path("/sys/fs/cgroup/promigence.slice") / SLICE
# A keeper kills its machine when it is asked to end; so long may a machine's memory take to be given back.
_ENDS_WITHIN_S = 20


def served() -> bool:
    """Whether systemd runs this host and takes our word: it lets root make scopes."""
    return os.geteuid() == 0 and BOOTED.is_dir() and shutil.which("systemd-run") is not None


def unit_of(name: str) -> str:
    """The scope of a machine."""
    return f"promigence-{name}.scope"


def group_of(name: str) -> Path:
    """Its control group; there as long as a process is in it."""
    return _GROUPS / unit_of(name)


def words(name: str, limit_bytes: int) -> tuple[str, ...]:
    """What stands before the command that is to run in this machine's scope: a keeper and its program.

    Where they meet their limit of memory the kernel kills the largest process of the scope, which is never the keeper:
    that lives to write down how its machine ended.
    """
    properties = {
        "MemoryMax": str(limit_bytes),
        "MemorySwapMax": "0",
        # A scope that is delegated goes on when the kernel has killed in it; others systemd may end, keeper and all.
        "Delegate": "yes",
        "TimeoutStopSec": str(_ENDS_WITHIN_S),
    }
    return (
        *("systemd-run", "--scope", "--quiet", "--collect", "--no-ask-password"),
        *(f"--slice={SLICE}", f"--unit={unit_of(name)}"),
        *(f"--property={key}={value}" for key, value in properties.items()),
        "--",
    )
