"""`promigence-server audit`: who changed what, of all projects and of the deployment itself."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from app.domain.audit import Sought
from app.domain.instant import read_instant
from workers.command import HERE, Dir, Json, ports_of
from workers.table import table

COLUMNS = ("at", "project", "actor", "action", "target", "outcome", "request", "from")


def audit(
    project: Annotated[str | None, typer.Option(help="Of one project.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="By one key, or by `operator:NAME`.")
    ] = None,
    action: Annotated[str | None, typer.Option(help="As the column names it.")] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="A date or an instant.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="A date or an instant.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 100,
    directory: Dir = HERE,
    as_json: Json = False,
) -> None:
    """Who changed what, newest first: over the API, and by commands like this one."""
    sought = Sought(
        key,
        action,
        None if since is None else read_instant("from", since),
        None if until is None else read_instant("until", until),
    )
    with ports_of(directory) as ports:
        entries = ports.audit.list(project, sought, limit, None)
    told = [{"project": entry.project_id, **entry.as_dict()} for entry in entries]
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    names = ("at", "project", "actor", "action", "target", "outcome", "request_id", "client")
    typer.echo(table(COLUMNS, ([each[name] for name in names] for each in told)))
