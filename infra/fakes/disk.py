"""A disk that is as full as it is told to be."""

from __future__ import annotations


class FakeDisk:
    """`Disk`: what is left is what was set."""

    def __init__(self, free_bytes: int = 1 << 40) -> None:
        self.left_bytes = free_bytes

    def free_bytes(self) -> int:
        return self.left_bytes
