"""`promigence-server keys`: API keys of projects, for the operator."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.domain.account import MAX_KEY_DAYS, Scope, key_named, ordered
from workers.command import HERE, Dir, Json, ports_of
from workers.noted import changing
from workers.table import table

# The processes of a stack are commands of the same program: what only these need they import by themselves.
if TYPE_CHECKING:
    from app.domain.account import Key

PROJECT = "default"
DAY_S = 24 * 3600
COLUMNS = (
    *("key", "begins", "project", "name", "scopes"),
    *("last used", "expires", "hashed with", "state"),
)

keys = typer.Typer(no_args_is_help=True, help="API keys; a secret is shown once, where it is made.")

Scopes = Annotated[
    list[Scope] | None,
    typer.Option(
        "--scope", help="What it opens; repeatable. All by default; none implies another."
    ),
]
Days = Annotated[
    float | None,
    typer.Option(
        "--expires", metavar="DAYS", min=0.001, max=MAX_KEY_DAYS, help="When it ends by itself."
    ),
]


@keys.command("create")
def create_key(
    name: str,
    scope: Scopes = None,
    project: str = PROJECT,
    expires: Days = None,
    directory: Dir = HERE,
    as_json: Json = False,
) -> None:
    """Make a key. Its secret is printed now and never again."""
    lasts_s = None if expires is None else expires * DAY_S
    with changing(directory, "keys.create", project) as change:
        given = ordered(scope or Scope)
        key, secret = change.ports.keys.create(project, key_named(name), given, lasts_s)
        change.about(key.key_id, project)
    typer.echo(json.dumps({**_shown(key), "secret": secret}, indent=2) if as_json else secret)


@keys.command("list")
def list_keys(
    project: Annotated[str | None, typer.Option(help="Of one project.")] = None,
    directory: Dir = HERE,
    as_json: Json = False,
) -> None:
    """Keys without their secrets, and which secret of the deployment each is hashed with.

    `previous`: it opens until `key_secret_previous` is taken away, unless it is used before. `unknown`: made before
    that was noted, and not used since. `lost`: it opens nothing.
    """
    with ports_of(directory) as ports:
        found = [_shown(key) for key in ports.keys.list(project)]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    typer.echo(table(COLUMNS, map(_row, found)))


@keys.command("revoke")
def revoke_key(key_id: str, directory: Dir = HERE, as_json: Json = False) -> None:
    """Let a key open nothing any more, be it the last of its project. Twice is safe."""
    with changing(directory, "keys.revoke", None, key_id) as change:
        key = change.ports.keys.revoke(key_id)
        change.about(key_id, key.project_id)
    typer.echo(json.dumps(_shown(key), indent=2) if as_json else f"revoked {key_id}")


def _shown(key: Key) -> dict[str, Any]:
    told = key.as_dict()
    return {
        **told,
        "hashed_with": key.under.value,
        "state": _state(key),
    }


def _state(key: Key) -> str:
    """By this machine's clock; what a key opens is judged by the database's."""
    if key.revoked_ns is not None:
        return "revoked"
    return "live" if key.is_live(time.time_ns()) else "expired"


def _row(told: dict[str, Any]) -> tuple[object, ...]:
    return (
        told["key_id"],
        f"{told['prefix']}...",
        told["project"],
        told["name"],
        ",".join(told["scopes"]),
        told["last_used_at"],
        told["expires_at"],
        told["hashed_with"],
        told["state"],
    )
