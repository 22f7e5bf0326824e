"""Rate cards: those that ship with the product, an operator's own, and how both follow from an instance's price."""

from __future__ import annotations

from infra.rates.card import Card, bought, day_of, derived, written
from infra.rates.derivation import Derivation, Grid, Host, Plan, Storage
from infra.rates.read import parse, problems_of, read_card
from infra.rates.shipped import (
    DEFAULT,
    PLAN_PERCENT,
    PRICED_AT,
    REGION,
    SHIPPED,
    STORAGE,
    card_of,
    listed_host,
    shipped_card,
)

__all__ = [
    "DEFAULT",
    "PLAN_PERCENT",
    "PRICED_AT",
    "REGION",
    "SHIPPED",
    "STORAGE",
    "Card",
    "Derivation",
    "Grid",
    "Host",
    "Plan",
    "Storage",
    "bought",
    "card_of",
    "day_of",
    "derived",
    "listed_host",
    "parse",
    "problems_of",
    "read_card",
    "shipped_card",
    "written",
]
