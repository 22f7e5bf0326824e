"""`promigence-server teardown`: what is left of a deployment in the account when its machines are gone."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from app.errors import BadRequest
from workers.command import HERE, Dir, Json


def teardown(
    directory: Dir = HERE,
    delete: Annotated[
        str | None, typer.Option(help="Delete it; the deployment's name says that you mean it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what the product has made in the account by itself: volumes and snapshots with the deployment's tag, secrets
    and Redis logins of its hosts. Needs no database, only the account (PROMIGENCE_AWS_REGION, PROMIGENCE_DEPLOYMENT).

    Exit code 1 if something is left.
    """
    from app.flow import teardown as ends
    from infra import wiring_access
    from infra.settings import load

    settings = load(directory)
    made = wiring_access.made_in_account(settings)
    if delete is not None and delete != settings.deployment:
        raise BadRequest(
            "other_deployment", f"the deployment is {settings.deployment}, not {delete}"
        )
    found = ends.left(made)
    if delete is not None:
        ends.remove(made, found)
    if as_json:
        shown = [dataclasses.asdict(each) for each in found]
        typer.echo(json.dumps({"deleted": delete is not None, "found": shown}, indent=2))
    else:
        for each in found:
            typer.echo(f"{each.kind:9} {each.name}  {each.detail}")
        typer.echo(f"{len(found)} {'deleted' if delete is not None else 'left'}")
    if found and delete is None:
        raise typer.Exit(1)
