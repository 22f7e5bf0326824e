"""`promigence-server usage`: the statement of all projects, for the operator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

# The processes of a stack are commands of the same program: what only this one needs it imports by itself.
if TYPE_CHECKING:
    from rich.table import Table

HERE = Path(".promigence")
CHARGED = ("forks", "attempts", "fork_seconds", "charged_usd", "accruing_usd")
ESTIMATED = ("committed_usd", "used_usd", "idle_usd", "overflow_usd", "on_demand_equivalent_usd")


def usage(
    directory: Annotated[Path, typer.Option("--dir", help="The stack that is meant.")] = HERE,
    by: Annotated[
        str,
        typer.Option(help="What the rows stand for: hour, day, project, snapshot; with commas."),
    ] = "project,day",
    from_: Annotated[
        str | None, typer.Option("--from", help="A date or an instant. [default: this month]")
    ] = None,
    until: Annotated[str | None, typer.Option(help="The same. [default: now]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What all projects were charged and, apart from it, the estimated cloud cost, with what was idle."""
    from app.flow.usage import read_asked
    from app.flow.usage import usage as statement
    from infra import settings, wiring

    asked = read_asked(from_, until, by)
    with wiring.control(settings.load(directory)) as control:
        told = statement(control.ports, None, asked)
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    _print(told)


def _print(told: dict[str, Any]) -> None:
    """Two tables of the same rows and their total: what was charged, and apart from it what is estimated."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    total = {**dict.fromkeys(told["by"], ""), told["by"][0]: "total", **told["total"]}
    rows = [*told["rows"], total]
    console.print(f"{told['from']} to {told['until']}; charged, in USD")
    console.print(_table(told["by"], CHARGED, rows))
    console.print(f"estimated cloud cost, by rate card {told['card_version']}")
    console.print(_table(told["by"], ESTIMATED, [{**row, **row["estimate"]} for row in rows]))
    console.print(f"complete until {told['complete_until']}. {told['note']}")


def _table(by: list[str], amounts: tuple[str, ...], rows: list[dict[str, Any]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for name in by:
        table.add_column(name, overflow="fold")
    for name in amounts:
        table.add_column(name.removesuffix("_usd").replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(str(row[name]) for name in by), *(_shown(row[name]) for name in amounts))
    return table


def _shown(amount: object) -> str:
    """Money to the micro-dollar; `-` where it is nobody's."""
    if amount is None:
        return "-"
    return f"{amount:.6f}" if isinstance(amount, float) else str(amount)
