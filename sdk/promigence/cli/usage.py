"""`promigence usage`: what was charged and, apart from it, what the cloud is estimated to have cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, cast

import typer
from rich.console import RenderableType
from rich.text import Text

from promigence.cli.session import AsJson, session, table
from promigence.types import Usage, UsageAmounts, UsageEstimate
from promigence.types.usage import By

CHARGED = ("forks", "hours", "charged", "verification", "tasks", "environment")
ESTIMATED = ("used", "overflow", "on demand", "committed", "by others", "idle", "storage")


def usage(
    ctx: typer.Context,
    by: Annotated[
        str,
        typer.Option(help="What the rows stand for: hour, day, project, snapshot; with commas."),
    ] = "day",
    from_: Annotated[
        str | None,
        typer.Option("--from", help="A date or an instant; without it, the month's beginning."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="A date or an instant; without it, now.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What was charged, by hour, day, project or snapshot, and apart from it the estimated cloud cost."""
    with session(ctx, as_json) as here:
        told = here.client.usage(from_, until, by=cast("list[By]", by.split(",")))
        here.give(told, *shown(told))


def shown(told: Usage) -> list[RenderableType]:
    """Two tables of the same rows and their total: what was charged, and apart from it what is estimated."""
    rows = list(_named(told))
    charged = [(*names, *_charged(amounts)) for names, amounts in rows]
    estimated = [(*names, *_estimated(amounts["estimate"])) for names, amounts in rows]
    return [
        Text.assemble(
            (f"{told['from']} to {told['until']}", "bold"),
            f"  {told['project'] or 'all projects'}; in USD",
        ),
        Text("charged", style="bold"),
        table(*told["by"], *CHARGED, rows=charged),
        Text(
            f"accruing: {_money(told['total']['accruing_usd'])} more if all machines that live ended now"
        ),
        Text(f"estimated cloud cost, by rate card {told['card_version']}", style="bold"),
        table(*told["by"], *ESTIMATED, rows=estimated),
        Text(f"complete until {told['complete_until']}. {told['note']}", style="dim"),
    ]


def _named(told: Usage) -> Iterator[tuple[tuple[str | None, ...], UsageAmounts]]:
    """What each row stands for, and its amounts; the total is the last."""
    for row in told["rows"]:
        yield tuple(row[name] for name in told["by"]), row
    yield ("total", *[""] * (len(told["by"]) - 1)), told["total"]


def _charged(told: UsageAmounts) -> tuple[object, ...]:
    hours = f"{told['fork_seconds'] / 3600:.2f}"
    parts = (told["verification_usd"], told["tasks_usd"], told["environment_usd"])
    return (told["forks"], hours, *map(_money, (told["charged_usd"], *parts)))


def _estimated(told: UsageEstimate) -> tuple[object, ...]:
    ours = (told["used_usd"], told["overflow_usd"], told["on_demand_equivalent_usd"])
    whole = (told["committed_usd"], told["used_by_others_usd"], told["idle_usd"])
    return tuple(map(_money, (*ours, *whole, told["storage_usd"])))


def _money(amount: float | None) -> str | None:
    """To the micro-dollar; None where an amount is nobody's."""
    return None if amount is None else f"{amount:.6f}"
