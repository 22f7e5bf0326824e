"""When a host's disk is nearly full, and when it is not any more.

Overlays of forks reserve their disk in full before a machine starts. This is about what else fills it: logs, a database
beside the host, bundles that are being made, another program.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """What the disk of a host's data folder has left, and what it is to have left at least, in bytes."""

    free_bytes: int
    reserve_bytes: int

    @property
    def nearly_full(self) -> bool | None:
        """None between the two marks: it is as it was, or a host at its mark would come and go with every file."""
        if self.free_bytes < self.reserve_bytes:
            return True
        return False if self.free_bytes >= self.reserve_bytes * 5 // 4 else None
