"""`promigence-server restored`: the database was put back from a backup, and a new epoch begins."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from workers.command import HERE, Dir, Json

# The processes of a stack are commands of the same program: what only this one needs it imports by itself.
if TYPE_CHECKING:
    from workers.stack.restore import Restored


def restored(
    directory: Dir = HERE,
    copy: Annotated[
        bool,
        typer.Option(help="It is a copy, for a deployment beside the one that it was taken from."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Though nothing here shows that the database went back.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say once, after the database was restored from a backup or to a point in time, and before the control plane is
    started again: an epoch begins. Hosts end every machine of earlier epochs, and close what their rows believe open.

    Refused while processes of the control plane run, and where nothing shows that the database went back.
    """
    from workers.stack.restore import restored as begin

    begun = begin(directory, copy=copy, force=force)
    typer.echo(json.dumps(begun.as_dict()) if as_json else _shown(begun))


def _shown(begun: Restored) -> str:
    return "\n".join(
        [
            f"epoch {begun.epoch} of deployment {begun.deployment_id} has begun (before: {begun.before})",
            f"why: {begun.why}",
            f"{begun.open_attempts} attempts are open in the rows: each host closes its own, or their leases do",
            "start the control plane now; then `promigence-server doctor`",
        ]
    )
