"""`promigence-server upgrade`: this stack to the release that is installed, under running work."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

from workers.command import HERE, Dir, Json

# The processes of a stack are commands of the same program: what only this one needs it imports by itself.
if TYPE_CHECKING:
    from workers.stack.upgrade import Outlook

LEFT = 1


def upgrade(
    directory: Dir = HERE,
    check: Annotated[bool, typer.Option("--check", help="Only look: what would be done.")] = False,
    wait: Annotated[
        bool, typer.Option(help="Return when the old worker is gone, not before.")
    ] = True,
    everything: Annotated[
        bool, typer.Option("--all", help="Start parts of this release anew too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring database, API, billing, Flower and this host's worker to the release that is installed here. What runs goes
    on: the old worker stays for its machines, the new one takes what is new.

    On the control plane first, then on each host. It may be given again, and goes on where it stopped. Exit code 1 with
    --check if there is something to do.
    """
    from workers.stack import upgrade as work

    def say(step: str, about: dict[str, object]) -> None:
        typer.echo(json.dumps({"step": step, **about}) if as_json else words(step, about))

    outlook = (
        work.check(directory)
        if check
        else work.upgrade(directory, say, wait=wait, everything=everything)
    )
    told = {**dataclasses.asdict(outlook), "done": outlook.done}
    typer.echo(json.dumps(told) if as_json else shown(outlook))
    if check and not outlook.done:
        raise typer.Exit(LEFT)


def words(step: str, about: dict[str, object]) -> str:
    """A step as a line for people."""
    if about == {"revisions": []}:
        return "the schema is of this release already"
    told = ", ".join(f"{name} {_plain(value)}" for name, value in about.items())
    return f"{step.replace('_', ' ')}: {told}" if told else step.replace("_", " ")


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} of process {pid}" for pid, count in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def shown(outlook: Outlook) -> str:
    """How it stands, for people."""
    lines = [f"release {outlook.release}, schema {outlook.revision}"]
    if outlook.expand:
        lines.append(f"migrations to run: {', '.join(outlook.expand)}")
    if outlook.contract:
        lines.append(
            f"migrations that wait until nobody needs the old shape: {', '.join(outlook.contract)}"
        )
    for part in outlook.parts:
        state = (
            "is of this release" if part.current else f"is of {part.release or 'an older release'}"
        )
        lines.append(f"{part.name} ({part.pid}) {state}")
    if outlook.done:
        lines.append("nothing is left to do")
    return "\n".join(lines)
