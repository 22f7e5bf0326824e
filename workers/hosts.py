"""`promigence-server hosts`: every host with its room, and the operator's hand on which of them get forks."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.errors import BadRequest
from infra.settings import load, secret_file
from workers.command import HERE, Dir, Json, ports_of
from workers.noted import changing
from workers.table import table

# The processes of a stack are commands of the same program: what only these need they import by themselves.
if TYPE_CHECKING:
    from app.ports.access import Access

COLUMNS = (
    "host",
    "zone",
    "state",
    "slots",
    "free",
    "memory MiB",
    "disk GiB",
    "bundles",
    "warm",
    "silent s",
    "why",
)

# What a host logs in with.
LOGINS = ("database_url", "redis_url")

hosts = typer.Typer(help="Hosts: their state and room; take one out of placement, or let it back.")

Host = Annotated[str, typer.Argument(metavar="HOST", help="A host's id, as `hosts` lists it.")]


@hosts.callback(invoke_without_command=True)
def list_hosts(ctx: typer.Context, directory: Dir = HERE, as_json: Json = False) -> None:
    """The hosts heard of in the last day. A host that breaks several forks in a row is in quarantine: it gets no
    forks until a self-test of its own passes, or `hosts release`.
    """
    if ctx.invoked_subcommand is not None:
        return
    # The processes of a stack are commands of the same program: what only this one needs it imports by itself.
    from app.domain.host_page import host_page

    with ports_of(directory) as ports:
        found = [
            host_page(host)
            | {"memory_free_mib": host.free_memory_mib, "disk_free_gib": host.free_disk_gib}
            for host in ports.hosts.list()
        ]
    typer.echo(json.dumps(found, indent=2) if as_json else table(COLUMNS, map(_row, found)))


@hosts.command()
def quarantine(
    host: Host,
    reason: Annotated[str, typer.Option(help="For whoever asks why this host gets no forks.")],
    directory: Dir = HERE,
    as_json: Json = False,
) -> None:
    """Give a host no more forks until `hosts release`. What runs on it goes on; what waits for it goes elsewhere."""
    with changing(directory, "hosts.quarantine", target=host) as change:
        change.ports.hosts.quarantine(host, reason)
    _say({"host_id": host, "quarantined": True}, f"{host} is in quarantine", as_json)


@hosts.command()
def release(host: Host, directory: Dir = HERE, as_json: Json = False) -> None:
    """End a host's quarantine now, whoever began it, and its retirement by the fleet. Twice is safe."""
    with changing(directory, "hosts.release", target=host) as change:
        ended = change.ports.hosts.release(host)
    words = f"{host} takes forks again" if ended else f"{host} is in no quarantine"
    _say({"host_id": host, "quarantined": False, "released": ended}, words, as_json)


@hosts.command()
def admit(
    host: Host,
    directory: Dir = HERE,
    into: Annotated[
        Path | None,
        typer.Option(
            help="A folder that gets them as files; who has them there is let in already."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Let a host in: it gets logins of its own at the database and the queue, whose passwords are new each time. Where
    the deployment keeps secrets in its account they are put there; else they are printed, now and never again.
    """
    from app.flow import admit as letting_in
    from workers.credentials import write

    if into is not None and all(secret_file(into, name).exists() for name in LOGINS):
        _say({"host_id": host, "admitted": True}, f"{host} has its logins in {into}", as_json)
        return
    with _doors(directory) as access, changing(directory, "hosts.admit", target=host):
        made = letting_in.admit(access, host)
        access.settle()
    if access.secrets is not None:
        _say(
            {"host_id": host, "admitted": True},
            f"{host} finds its logins among its secrets",
            as_json,
        )
        return
    told = dict(zip(LOGINS, (made.database_url, made.redis_url), strict=True))
    if into is not None:
        write(into, told)
        _say({"host_id": host, "admitted": True}, f"{host} finds its logins in {into}", as_json)
        return
    lines = (f"PROMIGENCE_{name.upper()}={shlex.quote(url)}" for name, url in told.items())
    _say({"host_id": host, "admitted": True, **told}, "\n".join(lines), as_json)


@hosts.command()
def expel(host: Host, directory: Dir = HERE, as_json: Json = False) -> None:
    """Shut a host out: its logins go, with the connections that it has, then its secret. Its machines end by their
    leases. Twice is safe.
    """
    from app.flow import admit as letting_in

    with _doors(directory) as access, changing(directory, "hosts.expel", target=host):
        letting_in.expel(access, host)
    _say({"host_id": host, "admitted": False}, f"{host} cannot log in any more", as_json)


@contextmanager
def _doors(directory: Path) -> Iterator[Access]:
    """Raises BadRequest(no_logins) where all hosts have the control plane's."""
    from infra import wiring_access

    with wiring_access.access(load(directory)) as access:
        if access is None:
            raise BadRequest(
                "no_logins",
                "hosts have logins of their own with PostgreSQL and PROMIGENCE_REDIS_ADMIN_URL or"
                " PROMIGENCE_REDIS_USER_GROUP",
            )
        yield access


def _say(told: dict[str, object], words: str, as_json: bool) -> None:
    typer.echo(json.dumps(told) if as_json else words)


def _row(told: dict[str, Any]) -> tuple[object, ...]:
    return (
        told["host_id"],
        told["zone"],
        told["state"],
        told["slots"],
        told["slots_free"],
        f"{told['memory_free_mib']}/{told['memory_mib']}",
        f"{told['disk_free_gib']}/{told['disk_gib']}",
        "any stored" if told["fetches"] else "its own",
        len(told["mounted"]),
        f"{told['heartbeat_age_seconds']:.0f}",
        _why(told),
    )


def _why(told: dict[str, Any]) -> str | None:
    """Why it gets no forks, with what its last self-test saw."""
    shut = told["quarantine"]
    if shut is None:
        reason: str | None = told["unready"]
        return reason
    last = "" if shut["last_test"] is None else f"; its last self-test: {shut['last_test']}"
    return f"{shut['reason']} (since {shut['since']}){last}"
