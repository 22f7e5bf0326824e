"""`promigence runs`: price, start, follow, read."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from promigence.cli import money, shown
from promigence.cli.exits import ExitCode, code_of_report
from promigence.cli.follow import following
from promigence.cli.session import AsJson, Session, session
from promigence.cli.step import Step, labels_of, with_step
from promigence.cli.watch import watch
from promigence.errors import WaitTimeout
from promigence.types import Report, Started

runs = typer.Typer(no_args_is_help=True, help="Steps of training: price, start, follow, read.")

RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id.")]


@runs.command()
@with_step
def quote(ctx: typer.Context, step: Step, as_json: AsJson = False) -> None:
    """The most that a step can cost. Nothing starts."""
    with session(ctx, as_json) as here:
        told = here.client.runs.quote(step.snapshot, **step.terms)  # type: ignore[misc]
        here.give(told, shown.quote(told))


@runs.command()
@with_step
def start(
    ctx: typer.Context,
    step: Step,
    quote_id: Annotated[
        str | None, typer.Option(help="Hold the run to this quote of `runs quote`.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not follow the run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a run and follow it to its end. Ctrl-C lets go of it; it goes on."""
    if quote_id is not None:
        step.terms["quote_id"] = quote_id
    with session(ctx, as_json) as here:
        started = _start(here, step)
        if detach:
            here.give(started, Text(started["run_id"]))
            return
        here.say(
            Text.assemble("started ", (started["run_id"], "bold")), shown.quote(started["quote"])
        )
        report = _follow(here, started["run_id"], None)
        here.give({**report, "quote": started["quote"]}, *shown.report(report))
        raise typer.Exit(code_of_report(report))


@runs.command()
def report(
    ctx: typer.Context,
    run_id: RunId,
    forks: Annotated[bool, typer.Option(help="With an entry for each fork.")] = True,
    as_json: AsJson = False,
) -> None:
    """What has come of a run so far. Its exit code says how the forks that have ended did."""
    with session(ctx, as_json) as here:
        told = here.client.runs.report(run_id, forks=forks)
        here.give(told, *shown.report(told))
        raise typer.Exit(code_of_report(told))


@runs.command()
def ledger(ctx: typer.Context, run_id: RunId, as_json: AsJson = False) -> None:
    """Where every micro-dollar of a run went: each move of its money, each machine's life and cost."""
    with session(ctx, as_json) as here:
        told = here.client.runs.ledger(run_id)
        here.give(told, *money.ledger(told))


@runs.command()
def wait(
    ctx: typer.Context,
    run_id: RunId,
    timeout: Annotated[float | None, typer.Option(help="Wait no longer, seconds.")] = None,
    as_json: AsJson = False,
) -> None:
    """Follow a run to its end, then its report. Ctrl-C lets go of it; it goes on."""
    with session(ctx, as_json) as here:
        told = _follow(here, run_id, timeout)
        here.give(told, *shown.report(told))
        raise typer.Exit(code_of_report(told))


runs.command()(watch)


@runs.command()
def cancel(ctx: typer.Context, run_id: RunId, as_json: AsJson = False) -> None:
    """End a run: its forks that are not final are cancelled."""
    with session(ctx, as_json) as here:
        told = here.client.runs.cancel(run_id)
        here.give(told, *shown.run(told))


@runs.command("list")
def list_runs(
    ctx: typer.Context,
    label: Annotated[
        list[str] | None, typer.Option(help="K=V that a run must have; again for more.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Runs, newest first."""
    with session(ctx, as_json) as here:
        told = here.client.runs.list(labels_of(label), limit=limit)
        here.give(told, shown.runs(told))


@runs.command("forks")
def list_forks(ctx: typer.Context, run_id: RunId, as_json: AsJson = False) -> None:
    """The forks of a run, each with its state."""
    with session(ctx, as_json) as here:
        told = here.client.runs.forks(run_id)
        here.give(told, shown.forks(told))


def _start(here: Session, step: Step) -> Started:
    try:
        return here.client.runs.start(step.snapshot, **step.terms)
    except KeyboardInterrupt:
        here.say(
            "interrupted before the answer came: the run may have been accepted; see `promigence runs list`"
        )
        raise


def _follow(here: Session, run_id: str, timeout: float | None) -> Report:
    try:
        with following(here.err) as on_progress:
            return here.client.runs.wait(run_id, timeout, on_progress=on_progress)
    except KeyboardInterrupt:
        here.say(f"let go; the run goes on. {_ways_back(run_id)}")
        if here.as_json:
            here.give({"run_id": run_id, "detached": True})
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except WaitTimeout:
        here.say(_ways_back(run_id))
        raise


def _ways_back(run_id: str) -> str:
    return f"Follow it: promigence runs wait {run_id}   End it: promigence runs cancel {run_id}"
