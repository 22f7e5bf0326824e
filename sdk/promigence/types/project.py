"""A project's limits and how it stands against them."""

from __future__ import annotations

from typing import TypedDict


class Project(TypedDict):
    """Charged, reserved (by live runs, not charged yet) and left add up to the budget. A limit of None is none."""

    project: str
    month: str
    resets_at: str
    monthly_budget_usd: float | None
    charged_usd: float
    reserved_usd: float
    left_usd: float | None
    max_forks: int | None
    live_forks: int
