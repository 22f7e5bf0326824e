"""Where leaks show: on a host beside its machines and bundles, in the rows, and in the queue."""

from __future__ import annotations

from typing import Protocol

from app.domain.leak import Leak, Trace


class Traces(Protocol):
    """What lies about of this stack, here or in its queue; whether it is in use its caller finds out.

    Nothing of another stack, of another user's or of the operator's own is ever among it.
    """

    def found(self) -> tuple[Trace, ...]:
        """All of it now. Raises Unavailable where it cannot be looked at."""
        ...

    def remove(self, leak: Leak) -> bool:
        """Make away with what was found, if it is that still. False if it is not, or cannot be made away with."""
        ...


class RowLeaks(Protocol):
    """Rows without an owner. Each look is one transaction; each mending one more, which looks again under its locks."""

    def now_ns(self) -> int:
        """The database's clock, ns since the epoch."""
        ...

    def found(self) -> tuple[Leak, ...]:
        """Rows in a state that is not final though nobody works on them, and sums that differ from what they sum."""
        ...

    def mend(self, leak: Leak) -> bool:
        """False if it is well by now, or if its kind is mended elsewhere or not at all."""
        ...

    def blobs_named(self) -> frozenset[str]:
        """The sha256 of all bytes that a row names."""
        ...
