"""A rate card as a file says it, and the file that says it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime

from app.domain.machine import Shape
from app.domain.money import NS_PER_SECOND, usd_text
from app.domain.rates import Basis, Commitment, Price, RateCard
from app.errors import BadRequest
from infra.rates.derivation import Derivation, Storage

HEAD = """\
# What a fork-hour of each shape costs. `promigence-server rates derive` wrote it and derives the same again;
# `promigence-server rates check` says whether it can be used.
"""
HOST = """
# What the prices follow from: an hour of this host on demand, and the memory of it that no fork gets.
[host]"""
PLAN = """
# What a committed hour of the host costs: a percentage of the price on demand, or usd_per_hour.
[plan]"""
STORAGE = """
# What a GiB of volumes, and one of snapshots, costs for a month of 730 hours.
[storage]"""
SHAPES = """
# A price for each of these, as far as it fits on the host. A shape between them costs what the next above it costs.
[shapes]"""
COMMITMENT = """
# Bought ahead, and owed for every hour from the first day up to the last, which is not part of it (UTC).
[commitment]"""


@dataclass(frozen=True, slots=True)
class Card:
    """All that a card's file says. `derivation` is None where an operator states prices of his own."""

    version: str
    region: str
    priced_at: date
    basis: Basis
    prices: tuple[Price, ...]
    derivation: Derivation | None = None
    commitment: Commitment | None = None
    storage: Storage | None = None

    def rates(self) -> RateCard:
        """What quotes and usage are made from."""
        storage = None if self.storage is None else self.storage.price
        return RateCard(self.version, self.prices, self.basis, self.commitment, storage)


def derived(
    derivation: Derivation,
    region: str,
    priced_at: date,
    basis: Basis = Basis.COMMITTED,
    commitment: Commitment | None = None,
    version: str | None = None,
    storage: Storage | None = None,
) -> Card:
    """A card whose rows follow from `derivation`.

    Without a version of the caller's it gets one that ends in a digest of all that the card says: two cards that
    differ in any figure never bear the same. Raises BadRequest(bad_rate_card) when not one shape fits on the host.
    """
    rows = derivation.prices()
    if not rows:
        raise BadRequest(
            "bad_rate_card", f"not one of the shapes of a card fits on {derivation.host.instance}"
        )

    def named(version: str) -> Card:
        return Card(version, region, priced_at, basis, rows, derivation, commitment, storage)

    if version is not None:
        return named(version)
    digest = hashlib.sha256(written(named("")).encode()).hexdigest()[:8]
    return named(f"{priced_at:%Y-%m}-{region}-{derivation.host.instance}-{digest}")


def bought(derivation: Derivation, vcpus: int, begins: date, ends: date) -> Commitment:
    """So many vCPUs at the price of the derivation's plan, from the first day up to `ends`, which is not part of it."""
    micros = derivation.committed_micros(vcpus)
    return Commitment(vcpus, micros, midnight_ns(begins), midnight_ns(ends))


def written(card: Card) -> str:
    """The file of a card, the same text for the same card."""
    return HEAD + "\n".join(_lines(card)) + "\n"


def midnight_ns(day: date) -> int:
    """When a day begins, UTC, by the wall clock."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return int(start.timestamp()) * NS_PER_SECOND


def day_of(wall_ns: int) -> date:
    """The day of an instant, UTC."""
    return datetime.fromtimestamp(wall_ns // NS_PER_SECOND, UTC).date()


def _lines(card: Card) -> Iterator[str]:
    yield f"version = {_text(card.version)}"
    yield 'currency = "USD"'
    yield f"region = {_text(card.region)}"
    yield f"priced_at = {card.priced_at}"
    yield f"basis = {_text(card.basis)}"
    if card.derivation is not None:
        yield from _facts(card.derivation)
    if card.commitment is not None:
        yield from _commitment(card.commitment)
    if card.storage is not None:
        yield from _storage(card.storage)
    for price in card.prices:
        yield from _row(price, card.derivation)


def _facts(facts: Derivation) -> Iterator[str]:
    host, plan, grid = facts.host, facts.plan, facts.grid
    yield HOST
    yield f"instance = {_text(host.instance)}"
    yield f"vcpus = {host.vcpus}"
    yield f"memory_mib = {host.memory_mib}"
    yield f"usd_per_hour = {usd_text(host.micros_per_hour)}"
    yield f"source = {_text(host.source)}"
    yield f"reserved_mib = {host.reserved_mib}"
    yield f"machine_overhead_mib = {host.machine_overhead_mib}"
    yield PLAN
    if plan.micros_per_hour is not None:
        yield f"usd_per_hour = {usd_text(plan.micros_per_hour)}"
    else:
        yield f"percent = {plan.percent}"
    yield SHAPES
    yield f"vcpus = {list(grid.vcpus)}"
    yield f"mib_per_vcpu = {list(grid.mib_per_vcpu)}"
    yield f"disk_gib = {grid.disk_gib}"


def _commitment(bought: Commitment) -> Iterator[str]:
    yield COMMITMENT
    yield f"vcpus = {bought.vcpus}"
    yield f"usd_per_hour = {usd_text(bought.micros_per_hour)}"
    yield f"begins = {day_of(bought.begins_ns)}"
    yield f"ends = {day_of(bought.ends_ns)}"


def _storage(storage: Storage) -> Iterator[str]:
    price = storage.price
    yield STORAGE
    yield f"volume_usd_per_gib_month = {usd_text(price.volume_micros_per_gib_month)}"
    yield f"snapshot_usd_per_gib_month = {usd_text(price.snapshot_micros_per_gib_month)}"
    yield f"source = {_text(storage.source)}"


def _row(price: Price, facts: Derivation | None) -> Iterator[str]:
    yield ""
    yield "[[price]]"
    if facts is not None:
        yield f"# {facts.host.forks(price.shape)} of them fit on the host"
    yield f"shape = {_shape(price.shape)}"
    yield f"committed_usd = {usd_text(price.committed_micros_per_hour)}"
    yield f"on_demand_usd = {usd_text(price.on_demand_micros_per_hour)}"


def _shape(shape: Shape) -> str:
    return (
        f"{{ vcpus = {shape.vcpus}, memory_mib = {shape.memory_mib}, disk_gib = {shape.disk_gib} }}"
    )


def _text(text: str) -> str:
    # All texts of a card are plain ASCII, for which JSON's strings are TOML's.
    return json.dumps(text)
