"""The list prices, and an operator's own card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.domain.machine import Shape
from app.domain.rates import Basis
from app.errors import BadRequest
from infra.rates import CARD_VERSION, list_card, read_card

CARD = {
    "version": "ours-1",
    "basis": "on_demand",
    "prices": [
        {
            "vcpus": 1,
            "memory_mib": 1024,
            "disk_gib": 8,
            "committed_micros_per_hour": 10,
            "on_demand_micros_per_hour": 20,
        }
    ],
}


@pytest.mark.parametrize(
    ("shape", "micros_per_hour"),
    [
        # 0.8467 USD / 16, and 73 % of it, each rounded up.
        (Shape(1, 512, 4), 38_631),
        (Shape(2, 1024, 4), 77_262),
        # Memory decides: (8192 + 64) MiB of the 60 GiB that a host has for machines.
        (Shape(1, 8192, 4), 83_057),
        # Not listed: what the cheapest listed shape that holds it costs.
        (Shape(1, 700, 10), 38_631),
        (Shape(3, 512, 4), 154_523),
    ],
)
def test_a_shape_costs_its_part_of_the_host(shape: Shape, micros_per_hour: int) -> None:
    rate = list_card().rate(shape)

    assert rate.micros_per_hour == micros_per_hour
    assert rate.basis is Basis.COMMITTED
    assert rate.card_version == CARD_VERSION


def test_a_commitment_is_never_dearer_and_more_of_a_machine_never_cheaper() -> None:
    prices = {price.shape: price for price in list_card().prices}

    assert all(
        0 < price.committed_micros_per_hour <= price.on_demand_micros_per_hour
        for price in prices.values()
    )
    for small, price in prices.items():
        for large, other in prices.items():
            if small.vcpus <= large.vcpus and small.memory_mib <= large.memory_mib:
                assert price.on_demand_micros_per_hour <= other.on_demand_micros_per_hour


def test_what_no_host_holds_is_not_priced() -> None:
    with pytest.raises(BadRequest, match="no price"):
        list_card().rate(Shape(8, 64 * 1024, 4))


def test_an_operators_card_is_read(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text(json.dumps(CARD))

    rate = read_card(path).rate(Shape(1, 512, 4))

    assert (rate.micros_per_hour, rate.basis, rate.card_version) == (20, Basis.ON_DEMAND, "ours-1")


@pytest.mark.parametrize(
    "wrong",
    [
        "not json",
        json.dumps({**CARD, "prices": []}),
        json.dumps({**CARD, "basis": "barter"}),
        json.dumps({**CARD, "prices": [{**CARD["prices"][0], "vcpus": 0}]}),  # type: ignore[dict-item]
        json.dumps({**CARD, "prices": [{**CARD["prices"][0], "vcpus": 1.5}]}),  # type: ignore[dict-item]
        json.dumps({"version": "x"}),
        json.dumps([]),
    ],
)
def test_a_card_that_cannot_be_read_is_named(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "card.json"
    path.write_text(wrong)

    with pytest.raises(BadRequest, match=r"card\.json"):
        read_card(path)


def test_a_card_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="absent"):
        read_card(tmp_path / "absent.json")
