"""`promigence-server usage`: the statement of all projects, for the operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

# The processes of a stack are commands of the same program: what only this one needs it imports by itself.
if TYPE_CHECKING:
    from rich.table import Table

HERE = Path(".promigence")
CHARGED = ("forks", "attempts", "fork_seconds", "charged_usd", "accruing_usd")
ESTIMATED = ("committed", "used", "idle", "overflow", "on_demand_equivalent")


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
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    console.print(f"{told['from']} to {told['until']}, USD; rate card {told['card_version']}")
    console.print(_table(told))
    console.print(f"complete until {told['complete_until']}. {told['note']}")


def _table(told: dict[str, Any]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for name in told["by"]:
        table.add_column(name, overflow="fold")
    for name in (*CHARGED, *(f"{name}~" for name in ESTIMATED)):
        table.add_column(name.removesuffix("_usd").replace("_", " "), justify="right")
    for row in told["rows"]:
        table.add_row(*(str(row[name]) for name in told["by"]), *_cells(row))
    table.add_section()
    table.add_row("total", *[""] * (len(told["by"]) - 1), *_cells(told["total"]))
    return table


def _cells(amounts: dict[str, Any]) -> Iterator[str]:
    for name in CHARGED:
        yield f"{amounts[name]:.6f}" if name.endswith("_usd") else str(amounts[name])
    for name in ESTIMATED:
        guess = amounts["estimate"][f"{name}_usd"]
        yield "-" if guess is None else f"{guess:.6f}"
