"""What a fork-hour of a shape costs, committed and on demand; a card has a version and never changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.domain.cloud import ResourceKind
from app.domain.machine import Shape
from app.domain.money import NS_PER_HOUR
from app.errors import BadRequest

# The cloud bills parts of the month that it is; 730 hours are the mean of a year's months.
MONTH_NS = 730 * NS_PER_HOUR


class Basis(StrEnum):
    COMMITTED = "committed"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate that a run is priced at, wholly: micro-dollars per fork-hour."""

    micros_per_hour: int
    basis: Basis
    card_version: str


@dataclass(frozen=True, slots=True)
class Price:
    """One line of a card."""

    shape: Shape
    committed_micros_per_hour: int
    on_demand_micros_per_hour: int

    def micros_per_hour(self, basis: Basis) -> int:
        """What a fork-hour costs at a basis."""
        if basis is Basis.COMMITTED:
            return self.committed_micros_per_hour
        return self.on_demand_micros_per_hour


@dataclass(frozen=True, slots=True)
class Commitment:
    """Capacity bought ahead: owed for every hour from `begins_ns` up to `ends_ns` (wall clock), used or not.

    `vcpus` are the vCPU-hours that come with each such hour; `micros_per_hour` is the price of one hour of all of them.
    """

    vcpus: int
    micros_per_hour: int
    begins_ns: int
    ends_ns: int


@dataclass(frozen=True, slots=True)
class StoragePrice:
    """What the account pays for keeping things: micro-dollars for a GiB and a month of `MONTH_NS`.

    A snapshot is priced by the size of its volume. The cloud bills the blocks that it holds, which are never more.
    """

    volume_micros_per_gib_month: int
    snapshot_micros_per_gib_month: int

    def micros_per_month(self, kind: ResourceKind, size_gib: int) -> int:
        """A month of a volume or snapshot of this size."""
        if kind is ResourceKind.VOLUME:
            return self.volume_micros_per_gib_month * size_gib
        return self.snapshot_micros_per_gib_month * size_gib


@dataclass(frozen=True, slots=True)
class RateCard:
    """Prices by shape. A shape that is not listed costs what the cheapest listed shape that holds it costs."""

    version: str
    prices: tuple[Price, ...]
    basis: Basis = Basis.COMMITTED
    commitment: Commitment | None = None
    storage: StoragePrice | None = None

    def rate(self, shape: Shape, basis: Basis | None = None) -> Rate:
        """At the card's own basis, or at the one that is asked for.

        Raises BadRequest(shape_not_priced), naming the largest shape that is.
        """
        holding = [price for price in self.prices if _holds(price.shape, shape)]
        if not holding:
            largest = max(price.shape for price in self.prices)
            raise BadRequest(
                "shape_not_priced",
                f"rate card {self.version} has no price for {shape}; its largest shape is {largest}",
            )
        basis = basis or self.basis
        return Rate(min(price.micros_per_hour(basis) for price in holding), basis, self.version)


def _holds(listed: Shape, asked: Shape) -> bool:
    return (
        listed.vcpus >= asked.vcpus
        and listed.memory_mib >= asked.memory_mib
        and listed.disk_gib >= asked.disk_gib
    )
