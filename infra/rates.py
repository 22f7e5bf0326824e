"""The rate card that a deployment starts with, from list prices; and how an operator's own card is read.

On demand: `m8i.4xlarge` in us-east-1, July 2026, 0.8467 USD an hour for 16 vCPU and 64 GiB, which is 0.0529 USD per
vCPU-hour with 4 GiB. A fork of a shape costs the part of that host that it takes: by processors or by memory, whichever
is more, where 4 GiB of the host are nobody's and each machine takes `MACHINE_OVERHEAD_MIB` above its own.
No processor is sold twice.

Committed: AWS sells no committed second. A plan is USD an hour, so a shape's committed rate is the plan's price of the
host over the same parts. The card assumes `PLAN_PERCENT` of the on-demand price, about what one year without upfront
payment costs; an operator states his own plan in a card of his own.
"""

from __future__ import annotations

import json
from pathlib import Path

from app.domain.machine import Shape
from app.domain.rates import Basis, Price, RateCard
from app.errors import BadRequest

CARD_VERSION = "2026-07-us-east-1-m8i"
HOST_MICROS_PER_HOUR = 846_700
HOST_VCPUS = 16
USABLE_MIB = 60 * 1024
MACHINE_OVERHEAD_MIB = 64
PLAN_PERCENT = 73
DISK_GIB = 64
# A vCPU-hour comes with 4 GiB; the shapes of a card are its memory from an eighth of that to twice it.
_VCPUS = (1, 2, 4, 8)
_MIB_PER_VCPU = (512, 1024, 2048, 4096, 8192)


def list_card() -> RateCard:
    """The list prices, by shape."""
    shapes = [Shape(vcpus, vcpus * mib, DISK_GIB) for vcpus in _VCPUS for mib in _MIB_PER_VCPU]
    fitting = [shape for shape in shapes if shape.memory_mib + MACHINE_OVERHEAD_MIB <= USABLE_MIB]
    return RateCard(CARD_VERSION, tuple(_price(shape) for shape in fitting))


def read_card(path: Path) -> RateCard:
    """An operator's card: `{"version", "basis", "prices": [{"vcpus", "memory_mib", "disk_gib",
    "committed_micros_per_hour", "on_demand_micros_per_hour"}]}`. Raises BadRequest(bad_rate_card).
    """
    try:
        card = json.loads(path.read_text())
        prices = tuple(_read_price(line) for line in card["prices"])
        if not prices:
            raise ValueError("a card needs a price")
        return RateCard(str(card["version"]), prices, Basis(card.get("basis", Basis.COMMITTED)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadRequest(
            "bad_rate_card", f"the rate card {path} cannot be read: {error}"
        ) from error


def _price(shape: Shape) -> Price:
    taken_mib = shape.memory_mib + MACHINE_OVERHEAD_MIB
    by_memory = _part(HOST_MICROS_PER_HOUR, taken_mib, USABLE_MIB)
    by_processors = _part(HOST_MICROS_PER_HOUR, shape.vcpus, HOST_VCPUS)
    on_demand = max(by_memory, by_processors)
    return Price(shape, _part(on_demand, PLAN_PERCENT, 100), on_demand)


def _part(micros: int, numerator: int, denominator: int) -> int:
    return -(-micros * numerator // denominator)


def _read_price(line: dict[str, object]) -> Price:
    shape = Shape(*(_whole(line, name) for name in ("vcpus", "memory_mib", "disk_gib")))
    return Price(
        shape, _whole(line, "committed_micros_per_hour"), _whole(line, "on_demand_micros_per_hour")
    )


def _whole(line: dict[str, object], name: str) -> int:
    value = line[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is a whole number from 1")
    return value
