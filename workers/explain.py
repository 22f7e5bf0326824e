"""`promigence-server explain`: where a fork was placed and why, or what it waits for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from workers.command import HERE, Dir, Json, ports_of

Fork = Annotated[str, typer.Argument(metavar="FORK", help="A fork's id, of any project.")]


def explain(fork: Fork, directory: Dir = HERE, as_json: Json = False) -> None:
    """Why a fork is where it is: what it needs, each host that it was given with the reason and what stood against the
    others; or why it waits: what every host lacks, and how many forks wait before it.
    """
    from app.flow.explain import explain as told_of

    with ports_of(directory) as ports:
        told = told_of(ports, fork)
    typer.echo(json.dumps(told, indent=2) if as_json else "\n".join(_lines(told)))


def _lines(told: dict[str, Any]) -> Iterator[str]:
    yield f"{told['fork_id']}  {told['state']}  {told['now']}"
    yield f"needs: {_needs(told['needs'])}"
    for event in told["history"]:
        yield f"{event['at']}  {_event(event)}"
        yield from (f"    not {_names(each)}: {each['why']}" for each in event["against"])
    waits = told["waits"]
    if waits is None:
        return
    limit = waits["project_max_forks"]
    of_project = "no limit" if limit is None else f"{waits['project_live_forks']} of {limit} forks"
    yield f"waits since {waits['since']}: {waits['ahead']} before it; its project has {of_project}"
    for host in waits["hosts"]:
        ever = "" if host["if_it_were_empty"] else " (nor if it were empty)"
        yield f"    {host['host']}: {host['why_not'] or 'has room'}{ever}"


def _needs(needs: dict[str, Any]) -> str:
    shape = f"{needs['vcpus']} vCPU, {needs['memory_mib']} MiB, {needs['disk_gib']} GiB of disk"
    key = needs["restore_key"] or "any host that boots"
    only = f"; only on {needs['only_on']}" if needs["only_on"] else ""
    avoided = ", ".join(needs["not_again_on"])
    return f"{needs['snapshot']} ({needs['bundle_id']}), {shape}, {key}{only}" + (
        f"; not again on {avoided}" if avoided else ""
    )


def _event(event: dict[str, Any]) -> str:
    where = f" on {event['host']}" if event["host"] else ""
    return f"{event['what']}{where}: {event['reason'] or '-'}"


def _names(against: dict[str, Any]) -> str:
    names = ", ".join(against["hosts"])
    return f"{names} and {against['more']} more" if against["more"] else names
