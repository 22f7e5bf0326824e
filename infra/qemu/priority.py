"""Machines stand back behind the worker that pays for them and the keepers that end them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

STEP = 5
_LEAST = 19


def stand_back(pid: int) -> None:
    """Lower the weight of a machine that has started; starting it is urgent, as somebody waits. Silent when it is gone.

    The kernel may weigh whole sessions against each other (autogroup), and threads only within one: both are lowered.
    """
    nice = min(_LEAST, os.getpriority(os.PRIO_PROCESS, 0) + STEP)
    process = Path("/proc") / str(pid)
    with contextlib.suppress(OSError):
        (process / "autogroup").write_text(str(STEP))
    with contextlib.suppress(OSError):
        for thread in (process / "task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)
