"""The command `promigence` put together."""

from __future__ import annotations

from typing import Annotated

import typer

from promigence._version import __version__
from promigence.cli import debug, exits, shown
from promigence.cli.access import audit, keys
from promigence.cli.forks import forks
from promigence.cli.project import project
from promigence.cli.runs import runs
from promigence.cli.session import AsJson, session
from promigence.cli.snapshots import snapshots
from promigence.cli.usage import usage

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Verified snapshots, warm forks and a hard spend cap for RL environments.",
    epilog="Reads PROMIGENCE_API_KEY and PROMIGENCE_BASE_URL. Exit codes: `promigence exit-codes`.",
)
app.add_typer(runs, name="runs")
debug.add_to(forks)
app.add_typer(forks, name="forks")
app.add_typer(snapshots, name="snapshots")
app.command()(usage)
app.command()(project)
app.add_typer(keys, name="keys")
app.command()(audit)


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=lambda told: _say_version(told)),
    ] = False,
) -> None:
    """Verified snapshots, warm forks and a hard spend cap for RL environments."""


@app.command()
def hosts(ctx: typer.Context, as_json: AsJson = False) -> None:
    """The hosts that forks run on."""
    with session(ctx, as_json) as here:
        told = here.client.hosts.list()
        here.give(told, shown.hosts(told))


@app.command("exit-codes")
def exit_codes() -> None:
    """What the exit code of a command says."""
    print((exits.__doc__ or "").strip())


def main() -> None:
    """The console script."""
    app()


def _say_version(told: bool) -> None:
    if told:
        print(f"promigence {__version__}")
        raise typer.Exit
