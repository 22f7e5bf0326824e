"""This host's clocks."""

from __future__ import annotations

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class HostClock:
    """`Clock` by the kernel: CLOCK_BOOTTIME to measure with, the wall clock for people and guests."""

    def boot_ns(self) -> int:
        """CLOCK_BOOTTIME, which counts suspended time too."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def wall_ns(self) -> int:
        """Wall clock, ns since the epoch."""
        return time.time_ns()

    def boot_id(self) -> str:
        """The kernel's own id of this boot."""
        return _BOOT_ID.read_text().strip()

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)
