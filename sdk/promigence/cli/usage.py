"""`promigence usage`: what was charged and, apart from it, what the cloud is estimated to have cost."""

from __future__ import annotations

from typing import Annotated, cast

import typer
from rich.console import RenderableType
from rich.text import Text

from promigence.cli.session import AsJson, session, table
from promigence.types import Usage, UsageAmounts
from promigence.types.usage import By

COLUMNS = ("forks", "fork-hours", "charged", "accruing")
ESTIMATED = ("used~", "overflow~", "on demand~", "committed~", "by others~", "idle~")


def usage(
    ctx: typer.Context,
    by: Annotated[
        str,
        typer.Option(help="What the rows stand for: hour, day, project, snapshot; with commas."),
    ] = "day",
    from_: Annotated[
        str | None, typer.Option("--from", help="A date or an instant. [default: this month]")
    ] = None,
    until: Annotated[str | None, typer.Option(help="The same. [default: now]")] = None,
    as_json: AsJson = False,
) -> None:
    """What was charged, by hour, day, project or snapshot, and apart from it the estimated cloud cost."""
    with session(ctx, as_json) as here:
        told = here.client.usage(from_, until, by=cast("list[By]", by.split(",")))
        here.give(told, *shown(told))


def shown(told: Usage) -> list[RenderableType]:
    """The rows and their total in one table: first what was charged, then what is estimated (~)."""
    by = told["by"]
    rows = [(*(row[name] for name in by), *_amounts(row)) for row in told["rows"]]
    total = ("total", *[""] * (len(by) - 1), *_amounts(told["total"]))
    return [
        Text.assemble(
            (f"{told['from']} to {told['until']}", "bold"),
            f"  {told['project'] or 'all projects'}, USD; rate card {told['card_version']}",
        ),
        table(*by, *COLUMNS, *ESTIMATED, rows=[*rows, total]),
        Text(f"complete until {told['complete_until']}. {told['note']}", style="dim"),
    ]


def _amounts(told: UsageAmounts) -> tuple[object, ...]:
    guess = told["estimate"]
    charged = (told["charged_usd"], told["accruing_usd"])
    estimated = (
        guess["used_usd"],
        guess["overflow_usd"],
        guess["on_demand_equivalent_usd"],
        guess["committed_usd"],
        guess["used_by_others_usd"],
        guess["idle_usd"],
    )
    hours = f"{told['fork_seconds'] / 3600:.2f}"
    return (told["forks"], hours, *map(_money, charged), *map(_money, estimated))


def _money(amount: float | None) -> str | None:
    """To the micro-dollar; None where an amount is nobody's."""
    return None if amount is None else f"{amount:.6f}"
