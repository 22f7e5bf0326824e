"""The cards and instance prices that ship with the product."""

from __future__ import annotations

from datetime import date
from importlib import resources
from pathlib import Path

from app.domain.rates import StoragePrice
from app.errors import NotFound
from infra.rates.card import Card
from infra.rates.derivation import Host, Storage
from infra.rates.read import parse, read_card

REGION = "us-east-1"
PRICED_AT = date(2026, 7, 1)
SOURCE = "list price on demand, Linux, July 2026"
# A year of a plan without payment in advance costs about so much of the price on demand; whoever has one states it.
PLAN_PERCENT = 73

# Volumes of gp3 with what throughput comes with them, and snapshots of the standard tier; the cloud's GB is a GiB.
STORAGE = Storage(
    StoragePrice(volume_micros_per_gib_month=80_000, snapshot_micros_per_gib_month=50_000),
    "list price of gp3 and standard snapshots, July 2026",
)

# By the name that the setting `rate_card` takes: the instance that the card is derived from.
SHIPPED = {"m8i": "m8i.4xlarge", "c8i": "c8i.4xlarge", "r8i": "r8i.4xlarge"}
DEFAULT = "m8i"

_GIB = 1024
# vCPUs, GiB, micro-dollars an hour. Nested virtualisation costs nothing extra where it is had.
_LISTED = {
    "c5.metal": (96, 192, 4_080_000),
    "c8i.4xlarge": (16, 32, 749_700),
    "m8i.xlarge": (4, 16, 211_700),
    "m8i.4xlarge": (16, 64, 846_700),
    "m8i.8xlarge": (32, 128, 1_693_400),
    "m8i.metal-48xl": (192, 768, 10_161_000),
    "r8i.4xlarge": (16, 128, 1_111_400),
}


def listed() -> tuple[str, ...]:
    """The instance types whose price is known here."""
    return tuple(sorted(_LISTED))


def listed_host(instance: str) -> Host:
    """An instance type at its list price. Raises NotFound(unknown_instance)."""
    if instance not in _LISTED:
        raise NotFound(
            "unknown_instance",
            f"no list price of {instance} is known here, only of {', '.join(listed())}; give it with "
            "--usd-per-hour, --vcpus and --memory-gib",
        )
    vcpus, memory_gib, micros_per_hour = _LISTED[instance]
    return Host(instance, vcpus, memory_gib * _GIB, micros_per_hour, SOURCE)


def shipped_card(name: str) -> Card:
    """A card that ships with the product. Raises NotFound(unknown_rate_card)."""
    if name not in SHIPPED:
        raise NotFound(
            "unknown_rate_card",
            f"no card {name!r} ships with the product; there are {', '.join(SHIPPED)}, "
            f"and a card of your own is named with its folder, like ./{name}.toml",
        )
    file = resources.files(__package__) / "cards" / f"{name}.toml"
    return parse(file.read_bytes(), f"{name} (shipped)")


def card_of(said: str | None) -> Card:
    """The card that the setting `rate_card` means: a bare word is a shipped one, all else the path of a file.

    Raises NotFound(unknown_rate_card), BadRequest(bad_rate_card).
    """
    if said is None:
        return shipped_card(DEFAULT)
    return shipped_card(said) if said.isalnum() else read_card(Path(said))
