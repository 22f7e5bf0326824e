"""`promigence snapshots`: build, verify, keep, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from promigence.cli import shown
from promigence.cli.exits import ExitCode
from promigence.cli.session import AsJson, Session, plain, session
from promigence.errors import WaitTimeout
from promigence.types import Build, Snapshot

snapshots = typer.Typer(no_args_is_help=True, help="Verified environments, by name.")

Name = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="A snapshot.")]
Timeout = Annotated[float | None, typer.Option(help="Wait no longer, seconds.")]


@snapshots.command()
def build(
    ctx: typer.Context,
    definition: Annotated[Path, typer.Argument(help="The definition, a TOML file.")],
    detach: Annotated[bool, typer.Option("--detach", help="Do not follow the build.")] = False,
    timeout: Timeout = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key begins the same build once.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Upload what a definition names, build it, verify it. Ends with `verified` or with what refused it."""
    with session(ctx, as_json) as here:
        here.say(f"packing and uploading the files of {definition}")
        build_id = here.client.snapshots.build(
            definition, wait=False, idempotency_key=idempotency_key
        )
        if detach:
            here.give({"build_id": build_id}, Text(build_id))
            return
        _give(here, _follow(here, build_id, timeout))


@snapshots.command()
def wait(
    ctx: typer.Context,
    build_id: Annotated[str, typer.Argument(metavar="BUILD", help="A build's id.")],
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Follow a build to its end."""
    with session(ctx, as_json) as here:
        _give(here, _follow(here, build_id, timeout))


@snapshots.command("get")
def get_one(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """A snapshot: what it was made of and what was checked."""
    with session(ctx, as_json) as here:
        _give(here, here.client.snapshots.get(name))


@snapshots.command("list")
def list_all(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    as_json: AsJson = False,
) -> None:
    """The stored snapshots."""
    with session(ctx, as_json) as here:
        told = here.client.snapshots.list(limit=limit)
        here.give(told, shown.snapshots(told))


@snapshots.command()
def delete(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Delete one version (NAME@3) or all (NAME). Refused while a live run needs it."""
    with session(ctx, as_json) as here:
        told = here.client.snapshots.delete(name)
        here.give(told, plain(f"deleted {', '.join(told['deleted']) or 'nothing'}"))


def _give(here: Session, told: Snapshot) -> None:
    here.give(told, shown.snapshot(told))


def _follow(here: Session, build_id: str, timeout: float | None) -> Snapshot:
    try:
        with _watching(here) as on_progress:
            return here.client.snapshots.wait(build_id, timeout, on_progress=on_progress)
    except KeyboardInterrupt:
        here.say(f"let go; the build goes on. {_way_back(build_id)}")
        if here.as_json:
            here.give({"build_id": build_id, "detached": True})
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except WaitTimeout:
        here.say(_way_back(build_id))
        raise


@contextmanager
def _watching(here: Session) -> Iterator[Callable[[Build], None]]:
    """Each line of the build's log as it comes, under a line that says what it does now."""
    with here.err.status("queued") as status:

        def look(build: Build) -> None:
            for line in build["log"]:
                here.say(plain(f"[{line['step']}] {line['text'].rstrip()}"))
            step = f": {build['step']}" if build["step"] else ""
            status.update(plain(f"{build['name']} {build['state']}{step}"))

        yield look


def _way_back(build_id: str) -> str:
    return f"Follow it: promigence snapshots wait {build_id}"
