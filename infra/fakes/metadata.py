"""The metadata service of a simulated instance: says what it is told to say."""

from __future__ import annotations

from app.domain.spot import InstanceIdentity, Notice
from app.errors import Unavailable


class FakeMetadata:
    """`app.ports.fleet.Metadata`. With `away` set nobody answers."""

    def __init__(
        self, instance_id: str, zone: str = "us-east-1a", region: str = "us-east-1"
    ) -> None:
        self._identity = InstanceIdentity(instance_id, zone, region)
        self.told: Notice | None = None
        self.advised: str | None = None
        self.away = False

    def identity(self) -> InstanceIdentity:
        self._answer()
        return self._identity

    def notice(self) -> Notice | None:
        self._answer()
        return self.told

    def rebalance(self) -> str | None:
        self._answer()
        return self.advised

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("metadata_away", "the instance metadata service: it is away")
