"""`promigence keys` and `promigence audit`: who may do what in the project, and who did."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from promigence.cli.session import AsJson, moment, session, table
from promigence.types import AuditEntry, Key, NewKey, Scope

KEYS = ("key", "begins", "name", "scopes", "last used", "expires", "state")
ENTRIES = ("at", "actor", "action", "target", "outcome", "request", "from")

keys = typer.Typer(no_args_is_help=True, help="Keys of the project; they need the scope admin.")


class Word(StrEnum):
    """The words of `Scope`, as Typer takes them."""

    READ = "read"
    RUN = "run"
    BUILD = "build"
    ADMIN = "admin"


Scopes = Annotated[
    list[Word],
    typer.Option("--scope", help="read, run, build or admin; repeatable. None implies another."),
]


@keys.command("list")
def list_keys(ctx: typer.Context, as_json: AsJson = False) -> None:
    """All keys of the project, without their secrets."""
    with session(ctx, as_json) as here:
        told = here.client.keys.list()
        here.give(told, table(*KEYS, rows=[_key(each) for each in told]))


@keys.command()
def create(
    ctx: typer.Context,
    name: str,
    scope: Scopes,
    expires: Annotated[
        float | None, typer.Option(metavar="DAYS", help="When it ends by itself.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key. Its secret is shown now and never again."""
    with session(ctx, as_json) as here:
        told = here.client.keys.create(name, _scopes(scope), expires_days=expires)
        here.give(told, _new(told))


@keys.command()
def revoke(ctx: typer.Context, key_id: str, as_json: AsJson = False) -> None:
    """Let a key open nothing any more. Twice is safe."""
    with session(ctx, as_json) as here:
        told = here.client.keys.revoke(key_id)
        here.give(told, Text(f"{key_id} opens nothing any more"))


def audit(
    ctx: typer.Context,
    key: Annotated[str | None, typer.Option(help="By this key's id, or operator:NAME.")] = None,
    action: Annotated[str | None, typer.Option(help="As the column names it.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="A date or an instant.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="A date or an instant.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 100,
    as_json: AsJson = False,
) -> None:
    """Who changed what in the project, newest first."""
    with session(ctx, as_json) as here:
        told = here.client.audit.list(key=key, action=action, from_=from_, until=until, limit=limit)
        here.give(told, table(*ENTRIES, rows=[_entry(each) for each in told], prose="target"))


def _scopes(words: list[Word]) -> list[Scope]:
    return [word.value for word in words]


def _key(told: Key) -> tuple[object, ...]:
    return (
        told["key_id"],
        f"{told['prefix']}...",
        told["name"],
        ",".join(told["scopes"]),
        _moment(told["last_used_at"]),
        _moment(told["expires_at"]),
        _state(told),
    )


def _state(told: Key) -> str:
    """By this machine's clock; what a key opens is judged by the server's."""
    if told["revoked_at"] is not None:
        return "revoked"
    ends = told["expires_at"]
    return "live" if ends is None or datetime.now(UTC) < datetime.fromisoformat(ends) else "expired"


def _new(told: NewKey) -> RenderableType:
    """The secret by itself: it goes into another program's settings."""
    return Text(told["secret"])


def _entry(told: AuditEntry) -> tuple[object, ...]:
    return (
        moment(told["at"]),
        told["actor"],
        told["action"],
        told["target"],
        told["outcome"],
        told["request_id"],
        told["client"],
    )


def _moment(told: str | None) -> str | None:
    return None if told is None else moment(told)
