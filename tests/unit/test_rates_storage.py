"""What a GiB of volumes and snapshots costs: as the cards that ship say it, and as an operator may."""

from __future__ import annotations

import pytest

from app.domain.cloud import ResourceKind
from app.domain.rates import StoragePrice
from app.errors import BadRequest
from infra import rates
from tests.unit.test_rates import OWN

STORAGE = """
[storage]
volume_usd_per_gib_month = 0.0952
snapshot_usd_per_gib_month = 0.054
source = "price list of August"
"""


def parse(storage: str) -> rates.Card:
    return rates.parse((OWN + storage).encode(), "card.toml")


@pytest.mark.parametrize("name", rates.SHIPPED)
def test_the_cards_that_ship_have_the_list_prices_of_their_region(name: str) -> None:
    """Of gp3 and of standard snapshots in us-east-1: 0.08 and 0.05 USD."""
    price = rates.shipped_card(name).rates().storage
    assert price is not None
    assert price.micros_per_month(ResourceKind.VOLUME, 8) == 640_000
    assert price.micros_per_month(ResourceKind.SNAPSHOT, 8) == 400_000


def test_an_operators_own_prices_of_storage_are_read_exactly() -> None:
    assert parse(STORAGE).rates().storage == StoragePrice(95_200, 54_000)
    assert parse("").rates().storage is None


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("0.0952", "0", "storage.volume_usd_per_gib_month: 0 will not do"),
        ("0.0952", "-0.1", "storage.volume_usd_per_gib_month: -0.1 will not do"),
        ("0.0952", "nan", "storage.volume_usd_per_gib_month: NaN will not do"),
        ("0.0952", "100.1", "storage.volume_usd_per_gib_month: 100.1 will not do"),
        ("0.054", "0.0000001", "storage.snapshot_usd_per_gib_month: 1E-7 will not do"),
        ("0.054", '"0.054"', 'storage.snapshot_usd_per_gib_month: "0.054" will not do'),
        ("snapshot_usd", "snapshots_usd", "storage.snapshot_usd_per_gib_month: is missing"),
        ('source = "price list of August"\n', "", "storage.source: is missing"),
        ("[storage]", "[stroage]", "stroage: is not known; did you mean storage?"),
    ],
)
def test_a_price_of_storage_that_is_none_is_named(old: str, new: str, problem: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(STORAGE.replace(old, new))
    assert any(each.startswith(problem) for each in rates.problems_of(refused.value))
