"""`promigence forks`: commands and files in held forks."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from promigence.cli import shown
from promigence.cli.exits import code_of_exec
from promigence.cli.session import AsJson, session, write_raw
from promigence.cli.step import command_of

forks = typer.Typer(
    no_args_is_help=True,
    help="Forks: commands and files in those that are held or kept; looks into any.",
)

ForkId = Annotated[str, typer.Argument(metavar="FORK", help="A fork's id.")]
GuestPath = Annotated[str, typer.Argument(help="An absolute path in the guest.")]


class Grade(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NONE = "none"


@forks.command("list")
def list_forks(
    ctx: typer.Context,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="A run's id.")],
    as_json: AsJson = False,
) -> None:
    """The forks of a run, each with its state."""
    with session(ctx, as_json) as here:
        told = here.client.runs.forks(run_id)
        here.give(told, shown.forks(told))


@forks.command("exec")
def run_command(
    ctx: typer.Context,
    fork_id: ForkId,
    argv: Annotated[
        list[str] | None, typer.Argument(help="After --: the command as it is, without a shell.")
    ] = None,
    sh: Annotated[str | None, typer.Option(help="The command, for /bin/sh -c.")] = None,
    cwd: Annotated[str | None, typer.Option(help="Where it runs in the guest.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="K=V; again for more.")] = None,
    user: Annotated[str | None, typer.Option(help="As whom it runs in the guest.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Its own limit, seconds.")] = None,
    exec_id: Annotated[str | None, typer.Option(help="Find a command again by its id.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a command in a held fork; its output comes out here. Exit code 1 when its own is not 0."""
    command = command_of(sh, argv, cwd, env, user, timeout)
    with session(ctx, as_json) as here:
        told = here.client.forks.exec(fork_id, command, exec_id)
        here.give(told)
        if not as_json:
            write_raw(told["stdout"], told["stderr"])
        if told["timed_out"]:
            here.say(f"the command ran past its own limit ({told['seconds']:.1f} s)")
        elif told["exit_code"]:
            here.say(f"the command's exit code is {told['exit_code']}")
        raise typer.Exit(code_of_exec(told))


@forks.command()
def upload(
    ctx: typer.Context,
    fork_id: ForkId,
    local: Annotated[Path, typer.Argument(help="A local file.")],
    guest_path: GuestPath,
    mode: Annotated[str, typer.Option(help="Permission bits, octal.")] = "0644",
    as_json: AsJson = False,
) -> None:
    """Write a local file into a held fork."""
    bits = _octal(mode)
    with session(ctx, as_json) as here:
        told = here.client.forks.upload(fork_id, local, guest_path, mode=bits)
        here.give(told, Text(f"{told['bytes']} bytes"))


@forks.command()
def download(
    ctx: typer.Context,
    fork_id: ForkId,
    guest_path: GuestPath,
    local: Annotated[Path, typer.Argument(help="Where it goes.")],
    as_json: AsJson = False,
) -> None:
    """Read a file of a held fork."""
    with session(ctx, as_json) as here:
        told = here.client.forks.download(fork_id, guest_path, local)
        here.give(told, Text(f"{told['bytes']} bytes in {told['path']}"))


@forks.command()
def release(
    ctx: typer.Context,
    fork_id: ForkId,
    grade: Annotated[Grade, typer.Option(help="How the task ended.")] = Grade.NONE,
    reward: Annotated[
        float | None, typer.Option(help="The reward, if it is not 1.0 or 0.0.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Hand a fork back, with its grade if there is one."""
    passed = {Grade.PASSED: True, Grade.FAILED: False, Grade.NONE: None}[grade]
    with session(ctx, as_json) as here:
        told = here.client.forks.release(fork_id, passed, reward)
        here.give(told, Text(f"{told['outcome']}, reward {told['reward']}"))


def _octal(told: str) -> int:
    try:
        bits = int(told, 8)
    except ValueError:
        bits = -1
    if not 0 <= bits <= 0o7777:
        raise typer.BadParameter(f"--mode is octal, such as 0755, not {told!r}")
    return bits
