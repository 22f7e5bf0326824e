"""`promigence-server projects`: budgets and limits of projects, for the operator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.domain.account import Limits, max_forks_of
from app.domain.money import micros_of_usd
from workers.command import HERE, Dir, Json, ports_of
from workers.noted import changing
from workers.table import table

# The processes of a stack are commands of the same program: what only these need they import by themselves.
if TYPE_CHECKING:
    from app.ports import Ports

NONE = "none"
COLUMNS = ("project", "budget", "charged", "held", "left", "forks", "at most")

projects = typer.Typer(no_args_is_help=True, help="Budgets and limits above those of a run.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A project's name.")]


@projects.command("list")
def list_projects(directory: Dir = HERE, as_json: Json = False) -> None:
    """All projects: budget of the month in USD and what runs hold of it, forks placed now and the most of them."""
    with ports_of(directory) as ports:
        found = [account.as_dict() for account in ports.projects.list()]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    typer.echo(table(COLUMNS, map(_row, found)))


@projects.command()
def show(name: Name, directory: Dir = HERE, as_json: Json = False) -> None:
    """A project."""
    with ports_of(directory) as ports:
        _tell(ports, name, as_json)


@projects.command("set")
def set_limits(
    name: Name,
    monthly_budget: Annotated[
        str | None, typer.Option(metavar="USD|none", help="What a month's runs may cost in all.")
    ] = None,
    max_forks: Annotated[
        str | None, typer.Option(metavar="N|none", help="Forks of the project on hosts at once.")
    ] = None,
    directory: Dir = HERE,
    as_json: Json = False,
) -> None:
    """Change a project's limits, and make it if need be. What is not given stays.

    A limit holds at once. It is refused where runs hold more of it already: the error names how much.
    """
    changes: Limits = {}
    if monthly_budget is not None:
        changes["monthly_budget_micros"] = (
            None if monthly_budget == NONE else micros_of_usd("monthly_budget", monthly_budget)
        )
    if max_forks is not None:
        changes["max_forks"] = None if max_forks == NONE else max_forks_of(max_forks)
    with changing(directory, "projects.set", name, name) as change:
        change.ports.projects.set_limits(name, changes)
        _tell(change.ports, name, as_json)


def _tell(ports: Ports, name: str, as_json: bool) -> None:
    told = ports.projects.account(name).as_dict()
    typer.echo(json.dumps(told, indent=2) if as_json else _lines(told))


def _row(told: dict[str, Any]) -> tuple[object, ...]:
    money = ("monthly_budget_usd", "charged_usd", "reserved_usd", "left_usd")
    amounts = (None if told[name] is None else f"{told[name]:.6f}" for name in money)
    return (told["project"], *amounts, told["live_forks"], told["max_forks"])


def _lines(told: dict[str, Any]) -> str:
    """In the words of `promigence project`."""
    budget, most = told["monthly_budget_usd"], told["max_forks"]
    money = "no budget" if budget is None else f"${told['left_usd']:.6f} left of ${budget:.6f}"
    forks = "no limit" if most is None else f"{most} at most"
    return (
        f"{told['project']}  {told['month']}: ${told['charged_usd']:.6f} charged, "
        f"${told['reserved_usd']:.6f} held by live runs, {money}\n"
        f"a new month begins {told['resets_at']}\n"
        f"{told['live_forks']} forks placed now, {forks}"
    )
