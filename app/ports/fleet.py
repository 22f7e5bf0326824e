"""The instances that hosts run on: what one is told about itself, and the group that they come from."""

from __future__ import annotations

from typing import Protocol

from app.domain.spot import InstanceIdentity, Notice


class Metadata(Protocol):
    """The instance metadata service of the host that asks. Every verb returns within seconds.

    Raises Unavailable(metadata_away) when it does not answer, or not as it should.
    """

    def identity(self) -> InstanceIdentity: ...

    def notice(self) -> Notice | None:
        """The interruption that is announced; None when none is."""
        ...

    def rebalance(self) -> str | None:
        """When the cloud recommended to move elsewhere, in its own words; None when it did not."""
        ...
