"""`promigence project`: the limits of the key's project, and how it stands against them."""

from __future__ import annotations

import typer
from rich.console import RenderableType
from rich.text import Text

from promigence.cli.session import AsJson, exact_usd, session
from promigence.types import Project


def project(ctx: typer.Context, as_json: AsJson = False) -> None:
    """The limits of the key's project, and what this month's runs hold of them."""
    with session(ctx, as_json) as here:
        told = here.client.project()
        here.give(told, shown(told))


def shown(told: Project) -> RenderableType:
    """Money of the month, then forks of now."""
    budget, left = told["monthly_budget_usd"], told["left_usd"]
    money = (
        "no budget"
        if budget is None or left is None
        else f"{exact_usd(left)} left of {exact_usd(budget)}"
    )
    forks = "no limit" if told["max_forks"] is None else f"{told['max_forks']} at most"
    return Text.assemble(
        (told["project"], "bold"),
        f"  {told['month']}: {exact_usd(told['charged_usd'])} charged, "
        f"{exact_usd(told['reserved_usd'])} held by live runs, {money}\n"
        f"a new month begins {told['resets_at']}\n"
        f"{told['live_forks']} forks placed now, {forks}",
    )
