"""How much is left on a host's disk."""

from __future__ import annotations

from typing import Protocol


class Disk(Protocol):
    """The disk that a host's machines and bundles are made on."""

    def free_bytes(self) -> int:
        """What it has left for us now, whoever filled the rest."""
        ...


class RoomyDisk:
    """`Disk` where nobody looks: it never fills."""

    def free_bytes(self) -> int:
        """More than any reserve."""
        return 1 << 62
