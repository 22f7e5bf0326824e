"""`promigence-server projects`: budgets and limits of projects, for the operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.domain.account import Limits, max_forks_of
from app.domain.money import micros_of_usd

# The processes of a stack are commands of the same program: what only these need they import by themselves.
if TYPE_CHECKING:
    from app.ports import Projects

HERE = Path(".promigence")
NONE = "none"

projects = typer.Typer(no_args_is_help=True, help="Budgets and limits above those of a run.")

Dir = Annotated[Path, typer.Option("--dir", help="The stack that is meant.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A project's name.")]


@projects.command("list")
def list_projects(directory: Dir = HERE, as_json: Json = False) -> None:
    """All projects, with their limits and what this month's runs hold of them."""
    with _projects(directory) as stored:
        found = [account.as_dict() for account in stored.list()]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for each in found:
        typer.echo(_line(each))


@projects.command()
def show(name: Name, directory: Dir = HERE, as_json: Json = False) -> None:
    """A project."""
    with _projects(directory) as stored:
        _tell(stored, name, as_json)


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
    with _projects(directory) as stored:
        stored.set_limits(name, changes)
        _tell(stored, name, as_json)


@contextmanager
def _projects(directory: Path) -> Iterator[Projects]:
    from infra import wiring
    from infra.settings import load

    with wiring.control(load(directory)) as control:
        yield control.ports.projects


def _tell(stored: Projects, name: str, as_json: bool) -> None:
    told = stored.account(name).as_dict()
    typer.echo(json.dumps(told, indent=2) if as_json else _line(told))


def _line(told: dict[str, Any]) -> str:
    budget, most = told["monthly_budget_usd"], told["max_forks"]
    money = "no budget" if budget is None else f"{told['left_usd']:.6f} of {budget:.6f} USD left"
    forks = "no limit" if most is None else f"at most {most}"
    return (
        f"{told['project']}  {told['month']}: {told['charged_usd']:.6f} USD charged, "
        f"{told['reserved_usd']:.6f} USD held, {money}  forks: {told['live_forks']} placed, {forks}"
    )
