"""`promigence snapshots`: build, verify, rebuild, keep, delete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from promigence.cli import shown
from promigence.cli.builds import Asked, follow, rebuild_many
from promigence.cli.session import AsJson, Session, plain, session
from promigence.types import Snapshot

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
        _give(here, follow(here, build_id, timeout))


@snapshots.command()
def wait(
    ctx: typer.Context,
    build_id: Annotated[str, typer.Argument(metavar="BUILD", help="A build's id.")],
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Follow a build to its end."""
    with session(ctx, as_json) as here:
        _give(here, follow(here, build_id, timeout))


@snapshots.command("get")
def get_one(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """A snapshot: what it was made of and what was checked."""
    with session(ctx, as_json) as here:
        _give(here, here.client.snapshots.get(name))


@snapshots.command("list")
def list_all(
    ctx: typer.Context,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only what no host can restore now, and why.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    as_json: AsJson = False,
) -> None:
    """The stored snapshots."""
    with session(ctx, as_json) as here:
        told = here.client.snapshots.list(stale=stale, limit=limit)
        here.give(told, shown.stale_snapshots(told) if stale else shown.snapshots(told))


@snapshots.command()
def warm(
    ctx: typer.Context,
    name: Name,
    hosts: Annotated[
        int, typer.Option("--hosts", min=0, max=1000, help="On at least so many; 0 ends it.")
    ],
    as_json: AsJson = False,
) -> None:
    """Keep a snapshot mounted on several hosts, so that its forks wait for no mount.

    NAME follows its newest version, NAME@3 stays.
    """
    with session(ctx, as_json) as here:
        told = here.client.snapshots.warm(name, hosts)
        here.give(told, shown.warm(told))


@snapshots.command()
def rebuild(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME[@VERSION]]", help="A snapshot.")
    ] = None,
    all_stale: Annotated[
        bool, typer.Option("--all-stale", help="Every name whose newest version is stale.")
    ] = False,
    frozen_under: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Every name whose newest version needs this restore key, or one that begins so.",
        ),
    ] = None,
    spend_cap: Annotated[
        float | None, typer.Option(help="USD for each, in the place of the definition's own.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not follow the builds.")] = False,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Build and verify anew what a stored version was built of; its name moves to what comes of it.

    NAME@3 brings the definition of that version back. Of many, one that cannot be rebuilt keeps none of the others; the
    exit code is that of the first that was not.
    """
    if [name is not None, all_stale, bool(frozen_under)].count(True) != 1:
        raise typer.BadParameter("give a NAME, --all-stale or --frozen-under", param_hint="NAME")
    with session(ctx, as_json) as here:
        if name is None:
            rebuild_many(here, frozen_under, Asked(spend_cap, detach, timeout))
            return
        build_id = here.client.snapshots.rebuild(name, spend_cap=spend_cap, wait=False)
        if detach:
            here.give({"build_id": build_id}, Text(build_id))
            return
        _give(here, follow(here, build_id, timeout))


@snapshots.command()
def delete(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Delete one version (NAME@3) or all (NAME). Refused while a live run needs it."""
    with session(ctx, as_json) as here:
        told = here.client.snapshots.delete(name)
        here.give(told, plain(f"deleted {', '.join(told['deleted']) or 'nothing'}"))


def _give(here: Session, told: Snapshot) -> None:
    here.give(told, shown.snapshot(told))
