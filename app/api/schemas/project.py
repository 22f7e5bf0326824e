"""A project's limits and how it stands against them."""

from __future__ import annotations

from app.api.schemas.base import Answer, Instant


class Project(Answer):
    """Charged, reserved (by live runs, not charged yet) and left add up to the budget. A limit of null is none."""

    project: str
    month: str
    resets_at: Instant
    monthly_budget_usd: float | None
    charged_usd: float
    reserved_usd: float
    left_usd: float | None
    max_forks: int | None
    live_forks: int
