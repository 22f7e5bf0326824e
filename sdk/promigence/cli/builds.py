"""Builds as they are followed: one to its snapshot, or those of many that are made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import typer

from promigence.cli import shown
from promigence.cli.exits import ExitCode, code_of_error
from promigence.cli.session import Session, plain
from promigence.errors import PromigenceError, WaitTimeout
from promigence.types import Build, Snapshot


@dataclass(frozen=True, slots=True)
class Asked:
    """How a rebuild was asked for."""

    spend_cap: float | None
    detach: bool
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What came of one: its build, or the error that there is none for; then a snapshot, or the error of the build."""

    of: str
    build_id: str | None = None
    snapshot: str | None = None
    error: PromigenceError | None = None

    def as_dict(self) -> dict[str, object]:
        error = self.error
        told = None if error is None else {"code": error.code, "message": error.message}
        return {
            "rebuilds": self.of,
            "build_id": self.build_id,
            "snapshot": self.snapshot,
            "error": told,
        }


def follow(here: Session, build_id: str, timeout: float | None) -> Snapshot:
    """Follow a build to its end, with its log on stderr. Ctrl-C and a time that is over leave it going, and say so."""
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


def rebuild_many(here: Session, frozen_under: str | None, asked: Asked) -> None:
    """Rebuild each name whose newest version needs a key that begins so, or by default one that no host has; the builds
    go on beside each other.

    Ends the process with the exit code of the first that came to nothing.
    """
    wanting = _stale(here) if frozen_under is None else _under(here, frozen_under)
    begun = [_begin(here, one, asked) for one in wanting]
    ended = begun if asked.detach else [_end(here, one, asked) for one in begun]
    told = [one.as_dict() for one in ended]
    here.give(told, shown.rebuilt(told))
    for one in ended:
        if one.error is not None:
            raise typer.Exit(code_of_error(one.error))


def _under(here: Session, key: str) -> list[Snapshot]:
    every = here.client.snapshots.list(limit=None)
    return [one for one in every if one["latest"] and one["restore_key"].startswith(key)]


def _stale(here: Session) -> list[Snapshot]:
    """Of those that are left out it is said why: a rebuild of an older version would move its name back."""
    stale = here.client.snapshots.list(stale=True, limit=None)
    if any(not one["restore"]["keys"] for one in stale):
        here.say("no host is up: nothing can be built, and nothing is known to be stale")
        raise typer.Exit(ExitCode.ERROR)
    for one in stale:
        if one["state"] != "stale":
            here.say(plain(f"{one['snapshot']}: {one['restore']['why']}; left as it is"))
        elif not one["latest"]:
            here.say(plain(f"{one['snapshot']}: not what {one['name']} means; left as it is"))
    return [one for one in stale if one["state"] == "stale" and one["latest"]]


def _begin(here: Session, old: Snapshot, asked: Asked) -> Rebuilt:
    """By its bare name: what was built in the meantime is not undone."""
    try:
        build_id = here.client.snapshots.rebuild(old["name"], spend_cap=asked.spend_cap, wait=False)
    except PromigenceError as error:
        here.say(plain(f"{old['snapshot']}: {error.message}"))
        return Rebuilt(old["snapshot"], error=error)
    return Rebuilt(old["snapshot"], build_id)


def _end(here: Session, begun: Rebuilt, asked: Asked) -> Rebuilt:
    if begun.build_id is None:
        return begun
    here.say(plain(f"{begun.of}: build {begun.build_id}"))
    try:
        made = follow(here, begun.build_id, asked.timeout)
    except PromigenceError as error:
        here.say(plain(f"{begun.of}: {error.message}"))
        return Rebuilt(begun.of, begun.build_id, error=error)
    return Rebuilt(begun.of, begun.build_id, made["snapshot"])


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
