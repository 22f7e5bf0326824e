"""`promigence-server usage`: the statement of all projects, for the operator."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from workers.command import HERE, Dir, Json, ports_of
from workers.table import table

CHARGED = ("forks", "hours", "charged", "verification", "tasks", "environment")
ESTIMATED = ("used", "overflow", "on demand", "committed", "idle", "volumes", "snapshots")


def usage(
    directory: Dir = HERE,
    by: Annotated[
        str,
        typer.Option(help="What the rows stand for: hour, day, project, snapshot; with commas."),
    ] = "project,day",
    from_: Annotated[
        str | None,
        typer.Option("--from", help="A date or an instant; without it, the month's beginning."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="A date or an instant; without it, now.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What all projects were charged and, apart from it, the estimated cloud cost, with what was idle."""
    # The processes of a stack are commands of the same program: what only this one needs it imports by itself.
    from app.flow.usage import read_asked
    from app.flow.usage import usage as statement

    asked = read_asked(from_, until, by)
    with ports_of(directory) as ports:
        told = statement(ports, None, asked)
    typer.echo(json.dumps(told, indent=2) if as_json else shown(told))


def shown(told: dict[str, Any]) -> str:
    """Two tables of the same rows and their total: what was charged, and apart from it what is estimated."""
    return "\n".join(
        (
            f"{told['from']} to {told['until']}  all projects; in USD",
            "charged",
            _table(told, CHARGED, _charged),
            f"accruing: {told['total']['accruing_usd']:.6f} more if all machines that live ended now",
            f"estimated cloud cost, by rate card {told['card_version']}",
            _table(told, ESTIMATED, _estimated),
            f"complete until {told['complete_until']}. {told['note']}",
        )
    )


def _table(
    told: dict[str, Any], columns: tuple[str, ...], amounts: Callable[[dict[str, Any]], list[str]]
) -> str:
    by = told["by"]
    rows = [[*(row[name] for name in by), *amounts(row)] for row in told["rows"]]
    total = ["total", *[""] * (len(by) - 1), *amounts(told["total"])]
    return table((*by, *columns), [*rows, total])


def _charged(told: dict[str, Any]) -> list[str]:
    parts = ("charged_usd", "verification_usd", "tasks_usd", "environment_usd")
    hours = f"{told['fork_seconds'] / 3600:.2f}"
    return [str(told["forks"]), hours, *(_money(told[name]) for name in parts)]


def _estimated(told: dict[str, Any]) -> list[str]:
    estimate = told["estimate"]
    parts = ("used_usd", "overflow_usd", "on_demand_equivalent_usd", "committed_usd", "idle_usd")
    return [_money(estimate[name]) for name in (*parts, "volumes_usd", "snapshots_usd")]


def _money(amount: float | None) -> str:
    """To the micro-dollar; `-` where it is nobody's."""
    return "-" if amount is None else f"{amount:.6f}"
