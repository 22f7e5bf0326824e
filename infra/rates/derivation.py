"""What a fork of a shape costs on a host: the host's price over the forks of that shape that fit on it.

A fork fits while the host has whole processors left, for none is sold twice, and memory: a machine takes its own and an
overhead, and some is the host's. A host full of forks of one shape pays for itself, and never by less. `docs/rates.md`
works an example. Disk is not part of it: a host's volumes are bought apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.domain.machine import Shape
from app.domain.rates import Price, StoragePrice


@dataclass(frozen=True, slots=True)
class Host:
    """An instance type and what an hour of it costs on demand; `source` says where that price is from."""

    instance: str
    vcpus: int
    memory_mib: int
    micros_per_hour: int
    source: str
    reserved_mib: int = 4096
    machine_overhead_mib: int = 64

    def forks(self, shape: Shape) -> int:
        """How many machines of a shape it holds at once; 0 when not even one fits."""
        usable_mib = max(self.memory_mib - self.reserved_mib, 0)
        by_memory = usable_mib // (shape.memory_mib + self.machine_overhead_mib)
        return min(self.vcpus // shape.vcpus, by_memory)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a committed hour of a host costs: a percentage of its price on demand, or an amount. One of the two."""

    percent: int | None = None
    micros_per_hour: int | None = None

    def micros_of(self, host: Host) -> int:
        """An hour of `host` under the plan."""
        if self.micros_per_hour is not None:
            return self.micros_per_hour
        assert self.percent is not None
        return _part(host.micros_per_hour * self.percent, 100)


@dataclass(frozen=True, slots=True)
class Storage:
    """What is paid for volumes and snapshots, and where that is from."""

    price: StoragePrice
    source: str


@dataclass(frozen=True, slots=True)
class Grid:
    """The shapes that a card prices: each number of processors with each amount of memory for one."""

    vcpus: tuple[int, ...] = (1, 2, 4, 8)
    mib_per_vcpu: tuple[int, ...] = (512, 1024, 2048, 4096, 8192)
    disk_gib: int = 64

    def shapes(self) -> Iterator[Shape]:
        """All of them, the smallest first."""
        for vcpus in self.vcpus:
            for mib in self.mib_per_vcpu:
                yield Shape(vcpus, vcpus * mib, self.disk_gib)


@dataclass(frozen=True, slots=True)
class Derivation:
    """The facts that a card's rows follow from."""

    host: Host
    plan: Plan
    grid: Grid = Grid()

    def prices(self) -> tuple[Price, ...]:
        """A row for each shape of the grid that fits on the host."""
        rows = (self.price(shape) for shape in self.grid.shapes())
        return tuple(row for row in rows if row is not None)

    def price(self, shape: Shape) -> Price | None:
        """The row of one shape; None when not even one fits. Each price is rounded up to a whole micro-dollar."""
        forks = self.host.forks(shape)
        if forks == 0:
            return None
        committed = _part(self.plan.micros_of(self.host), forks)
        return Price(shape, committed, _part(self.host.micros_per_hour, forks))

    def committed_micros(self, vcpus: int) -> int:
        """An hour of so many vCPUs under the plan: that part of the host, rounded up."""
        return _part(self.plan.micros_of(self.host) * vcpus, self.host.vcpus)

    def on_demand_micros(self, vcpus: int) -> int:
        """An hour of so many vCPUs on demand: that part of the host, rounded up."""
        return _part(self.host.micros_per_hour * vcpus, self.host.vcpus)


def _part(micros: int, parts: int) -> int:
    return -(-micros // parts)
