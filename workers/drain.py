"""`promigence-server host drain`: this host's worker takes nothing new, ends what it holds, and goes."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from infra.settings import load
from workers.command import HERE, Dir, Json, ports_of

if TYPE_CHECKING:
    from app.domain.worker import Worker
    from app.ports import Ports

LOOK_S = 0.5

Left = tuple[dict[str, object], ...]

host = typer.Typer(no_args_is_help=True, help="The worker processes of this host.")


@host.callback()
def this_host() -> None:
    """The worker processes of this host."""


@host.command()
def drain(
    directory: Dir = HERE,
    wait: Annotated[bool, typer.Option(help="Return when the processes are gone.")] = False,
    as_json: Json = False,
) -> None:
    """Ask the worker processes that run here now to take nothing new, and to end when all that they hold has ended.

    Commands go on, and so do held forks and the ways out of their machines. Where a supervisor keeps the worker, the
    next one starts at once, beside it. With --wait a line is printed for each change, and the last one says that they
    are gone. Give it once: what was started since drains too if it is given again. Exit code 1 if no worker runs here.
    """
    with ports_of(directory) as ports:
        asked = ports.workers.drain(load(directory).host_id)
        if not asked:
            typer.echo("no worker runs on this host", err=True)
            raise typer.Exit(1)
        before: Left | None = None
        for left in _looks(ports, asked):
            if left != before:
                typer.echo(json.dumps({"draining": left}) if as_json else _in_words(left))
            if not wait:
                return
            before = left


def _looks(ports: Ports, asked: tuple[Worker, ...]) -> Iterator[Left]:
    """Who of those is left, with how many machines, again and again until nobody is."""
    host_id = asked[0].host_id
    while True:
        held = Counter(each.attempt.claim for each in ports.attempts.held_by(host_id))
        asked = _still_there(ports, host_id, asked)
        yield tuple(
            {"claim": each.claim, "pid": each.pid, "machines": held[each.claim]} for each in asked
        )
        if not asked:
            return
        time.sleep(LOOK_S)


def _still_there(ports: Ports, host_id: str, asked: tuple[Worker, ...]) -> tuple[Worker, ...]:
    """Those that have a row, or a process: it goes a moment after its row."""
    from workers.peers import process_of

    there = {each.claim for each in ports.workers.on(host_id)}
    return tuple(each for each in asked if each.claim in there or process_of(each).alive())


def _in_words(left: Left) -> str:
    if not left:
        return "drained: the worker is gone"
    return "; ".join(f"worker {each['pid']} drains: {each['machines']} machines" for each in left)
