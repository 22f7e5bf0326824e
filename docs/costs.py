"""Draws in terraform/README.md what a deployment costs, idle and per 1,000 fork-hours: `python -m docs.costs`.

Hosts cost what the shipped rate cards say, all else what terraform/prices.toml says.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from app.domain.machine import Shape
from app.domain.money import MICROS_PER_USD
from app.domain.rates import Basis
from infra.rates.shipped import SHIPPED, STORAGE, shipped_card

TERRAFORM = Path(__file__).resolve().parents[1] / "terraform"
PRICES = TERRAFORM / "prices.toml"
PAGE = TERRAFORM / "README.md"
BEGIN, END = "<!-- drawn by python -m docs.costs -->", "<!-- drawn until here -->"
HOURS_OF_MONTH = 730
ROOTS = ("production", "minimal")
SHAPES = (
    Shape(vcpus=1, memory_mib=1024, disk_gib=8),
    Shape(vcpus=1, memory_mib=4096, disk_gib=8),
    Shape(vcpus=2, memory_mib=8192, disk_gib=16),
    Shape(vcpus=4, memory_mib=16384, disk_gib=32),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a root makes that is paid for while nothing runs. `endpoints`: addresses, one for each service and zone."""

    zones: int
    control_type: str
    control_instances: int
    control_disk_gib: int
    database_class: str
    database_copies: int
    database_gib: int
    redis_type: str
    redis_nodes: int
    endpoints: int
    secrets: int
    alarms: int
    metrics: int


def sizes(root: str) -> Sizes:
    """As prices.toml has them."""
    return Sizes(**_prices()[root])


def section() -> str:
    """What stands between the marks."""
    prices = _prices()
    return "\n".join(
        (
            "",
            f"By the rate cards that ship and [prices.toml](prices.toml) ({prices['region']}, {prices['source']}).",
            "Prices change: change the file, and `python -m docs.costs` draws this again.",
            "",
            "**Idle**: no run, no host (`fleet_min = 0`), two zones; USD a month of 730 hours. A third zone with its",
            f"endpoints costs {_usd(_a_zone(sizes('production')))} more.",
            "",
            *_idle(),
            "",
            "Beside it: logs (0.50 USD a GiB), what clients download, what goes through endpoints (0.01 USD a GiB;",
            "S3's is free), backups beyond the database's size, and a secret for each host (0.40 USD a month).",
            "",
            "**1,000 fork-hours**: USD on hosts that are full, on demand and committed, by the rate card of each",
            "host ([rates](../docs/rates.md)). One that is not full costs the same.",
            "",
            *_fork_hours(),
            "",
            "**What is kept**",
            "",
            *_kept(),
            "",
        )
    )


def drawn_on(text: str) -> str:
    """The page with the section drawn anew. Raises ValueError without the marks."""
    head, begun, rest = text.partition(BEGIN)
    _, ended, tail = rest.partition(END)
    if not (begun and ended):
        raise ValueError(f"{PAGE.name} has no {BEGIN} with {END} after it")
    return f"{head}{BEGIN}\n{section()}\n{END}{tail}"


def _idle() -> Iterator[str]:
    columns = [list(_lines(sizes(root))) for root in ROOTS]
    yield f"| | {' | '.join(f'`envs/{root}`' for root in ROOTS)} |"
    yield f"|---|{'---|' * len(ROOTS)}"
    for entries in zip(*columns, strict=True):
        figures = " | ".join(f"{count}: {_usd(usd)}" for _, count, usd in entries)
        yield f"| {entries[0][0]} | {figures} |"
    totals = [sum((usd for _, _, usd in column), Decimal()) for column in columns]
    yield f"| **a month** | {' | '.join(f'**{_usd(total)}**' for total in totals)} |"
    yield f"| an hour | {' | '.join(_usd(total / HOURS_OF_MONTH) for total in totals)} |"


def _lines(of: Sizes) -> Iterator[tuple[str, str, Decimal]]:
    """What it is, how many, and USD a month."""
    hourly, monthly = _prices()["usd_per_hour"], _prices()["usd_per_month"]
    month = Decimal(HOURS_OF_MONTH)
    yield (
        "PostgreSQL",
        f"{of.database_copies} x {of.database_class}",
        (of.database_copies * hourly[of.database_class] * month),
    )
    stored = of.database_copies * of.database_gib
    yield (
        "its storage",
        f"{of.database_copies} x {of.database_gib} GiB",
        stored * monthly["database_gib"],
    )
    yield (
        "Redis",
        f"{of.redis_nodes} x {of.redis_type}",
        of.redis_nodes * hourly[of.redis_type] * month,
    )
    yield (
        "control instances",
        f"{of.control_instances} x {of.control_type}",
        (
            of.control_instances
            * (hourly[of.control_type] * month + of.control_disk_gib * monthly["volume_gib"])
        ),
    )
    yield "load balancer", "1", hourly["load_balancer"] * month
    yield "endpoints of AWS services", f"{of.endpoints}", of.endpoints * hourly["endpoint"] * month
    watched = of.alarms * monthly["alarm"] + of.metrics * monthly["metric"]
    yield "alarms and metrics", f"{of.alarms} and {of.metrics}", watched
    yield "key and secrets", f"1 and {of.secrets}", monthly["key"] + of.secrets * monthly["secret"]


def _a_zone(of: Sizes) -> Decimal:
    """What one more zone costs: the endpoints there."""
    hourly: Decimal = _prices()["usd_per_hour"]["endpoint"]
    return of.endpoints // of.zones * hourly * HOURS_OF_MONTH


def _fork_hours() -> Iterator[str]:
    cards = {word: shipped_card(word).rates() for word in SHIPPED}
    yield f"| shape | {' | '.join(SHIPPED[word] for word in cards)} |"
    yield f"|---|{'---|' * len(cards)}"
    for shape in SHAPES:
        figures = (
            f"{_thousand(card.rate(shape, Basis.ON_DEMAND).micros_per_hour)}, "
            f"{_thousand(card.rate(shape, Basis.COMMITTED).micros_per_hour)}"
            for card in cards.values()
        )
        yield f"| {shape.vcpus} vCPU, {shape.memory_mib // 1024} GiB | {' | '.join(figures)} |"


def _kept() -> Iterator[str]:
    price = STORAGE.price
    snapshot, volume = price.snapshot_micros_per_gib_month, price.volume_micros_per_gib_month
    yield "| | USD a month for each GiB |"
    yield "|---|---|"
    yield f"| a stored snapshot, at most (by the size of its volume) | {_usd(Decimal(snapshot) / MICROS_PER_USD)} |"
    yield f"| its volume, on each host that has it mounted | {_usd(Decimal(volume) / MICROS_PER_USD)} |"
    yield f"| a host's own disk, while the host is there | {_usd(Decimal(volume) / MICROS_PER_USD)} |"


def _thousand(micros_per_hour: int) -> str:
    return _usd(Decimal(micros_per_hour * 1000) / MICROS_PER_USD)


def _usd(amount: Decimal) -> str:
    return f"{amount:,.2f}"


def _prices() -> dict[str, Any]:
    return tomllib.loads(PRICES.read_text(), parse_float=Decimal)


def main() -> None:
    """Draw it where it stands."""
    PAGE.write_text(drawn_on(PAGE.read_text()))


if __name__ == "__main__":
    main()
