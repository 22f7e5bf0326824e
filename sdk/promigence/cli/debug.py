"""`promigence forks get, logs, console, reproduce`: one fork looked into."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from promigence.cli import shown_fork
from promigence.cli.exits import ExitCode
from promigence.cli.forks import ForkId
from promigence.cli.session import AsJson, Session, plain, session, write_raw
from promigence.cli.step import usd_of
from promigence.types import Logs, Reproduction

ExecId = Annotated[
    str | None,
    typer.Option("--exec", help="A command's id, or `task`, `test`, `grade`.", show_default=False),
]


def add_to(forks: typer.Typer) -> None:
    """Make the commands of this file commands of `promigence forks`."""
    for command in (get, logs, console, reproduce):
        forks.command()(command)


def get(ctx: typer.Context, fork_id: ForkId, as_json: AsJson = False) -> None:
    """A fork whole: why it failed, what it was given, its machines and commands."""
    with session(ctx, as_json) as here:
        told = here.client.forks.get(fork_id)
        here.give(told, *shown_fork.page(told))


def logs(
    ctx: typer.Context,
    fork_id: ForkId,
    exec_id: ExecId = None,
    stderr: Annotated[bool, typer.Option("--stderr", help="What went to stderr.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the command ends.")
    ] = False,
    local: Annotated[
        Path | None, typer.Option("--to", help="Into this file, byte by byte.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """All that is kept of a command's output; of a running one, what there is so far."""
    stream: Literal["stdout", "stderr"] = "stderr" if stderr else "stdout"
    if follow and (local is not None or as_json):
        raise typer.BadParameter("--follow goes without --to and --json")
    with session(ctx, as_json) as here:
        if follow:
            told = here.client.forks.logs(fork_id, exec_id, stream, on_text=_write)
        else:
            told = here.client.forks.logs(fork_id, exec_id, stream, local=local)
            here.give(told)
            if not as_json:
                _write(told["text"] or "")
        _say_state(here, told)


def console(ctx: typer.Context, fork_id: ForkId, as_json: AsJson = False) -> None:
    """The tail of the guest's console: what its kernel said last."""
    with session(ctx, as_json) as here:
        told = here.client.forks.console(fork_id)
        here.give(told)
        if not as_json:
            _write(told["text"])
            where = "lives" if told["live"] else "has ended"
            here.say(f"machine {told['attempt_id']} {where}")


def reproduce(
    ctx: typer.Context,
    fork_id: ForkId,
    hold_seconds: Annotated[
        float, typer.Option(help="How long the new fork may be held.")
    ] = 1800.0,
    spend_cap: Annotated[
        float | None,
        typer.Option(
            help="The most that it may cost, USD; by default what so long a hold can cost.",
            parser=usd_of,
            metavar="USD",
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run the same command in it, and compare.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """A held fork like this one: same snapshot version, environment, key and egress."""
    with session(ctx, as_json) as here:
        told = here.client.forks.reproduce(fork_id, hold_seconds=hold_seconds, spend_cap=spend_cap)
        if run:
            _run_again(here, told)
        here.give(told, *shown_fork.reproduction(told))


def _run_again(here: Session, told: Reproduction) -> None:
    """Run the original command in the new fork. Ends the process: 0 when it ended as it did then, else 1."""
    original = told["original"]
    if original is None or original["command"] is None:
        here.say(f"no command was started in {told['reproduces']}: there is none to run again")
        raise typer.Exit(ExitCode.BAD_USAGE)
    here.say(
        Text.assemble((told["fork_id"], "bold"), " is ready; running ").append_text(
            plain(shown_fork.command_line(original["command"]))
        )
    )
    again = here.client.forks.exec(told["fork_id"], original["command"])
    same = shown_fork.same_end(original, again)
    here.give({**told, "result": again, "same": same})
    if not here.as_json:
        write_raw(again["stdout"], again["stderr"])
    here.say(
        f"then: {shown_fork.end_of(original)}; now: {shown_fork.end_of(again)}: "
        f"{'the same' if same else 'not the same'}"
    )
    here.say(f"The fork is held until it is released: promigence forks release {told['fork_id']}")
    raise typer.Exit(ExitCode.OK if same else ExitCode.TASK_FAILED)


def _write(text: str) -> None:
    write_raw(text, "")


def _say_state(here: Session, told: Logs) -> None:
    if told["truncated"]:
        here.say("more was printed than is kept: this is head and tail of it")
    if told["state"] == "running":
        here.say(f"{told['exec_id']} is running; --follow goes on until it ends")
    elif told["state"] == "queued":
        here.say(f"{told['exec_id']} has not started yet")
