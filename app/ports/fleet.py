"""The instances that hosts run on: what one is told about itself, and the group that they come from."""

from __future__ import annotations

from typing import Protocol

from app.domain.fleet import FleetState
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


class Fleet(Protocol):
    """One group of instances, from which hosts come; an instance's id is its host's.

    Any call raises CloudRefused with a code of the cloud's, and Unavailable(cloud_away) when it does not answer: what
    was asked may have been done all the same.
    """

    def state(self) -> FleetState:
        """As it is now. Raises CloudRefused(refused) where there is no such group."""
        ...

    def desire(self, count: int) -> None:
        """Ask for so many instances; at once, and without waiting for them. Twice is safe.

        Fewer than live end nobody who is protected. Raises CloudRefused(limit_exceeded) beyond the group's own bounds.
        """
        ...

    def protect(self, instance_ids: tuple[str, ...]) -> None:
        """Never let the cloud pick these instances when the group is to shrink. Those that are gone are passed over."""
        ...

    def retire(self, instance_id: str) -> None:
        """End one instance and ask for one less. Twice is safe, and so is one that is gone.

        Raises CloudRefused(limit_exceeded) where the group would fall below its least.
        """
        ...

    def ended(self, instance_ids: tuple[str, ...]) -> frozenset[str]:
        """Those of the instances that have ended, as the cloud says: nothing runs there, and never will again.

        One that it does not know any more is not among them, nor one that is on its way out or only stopped.
        """
        ...
