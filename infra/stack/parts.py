"""The processes of the stack as data: what each is started by, and how it is stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Part:
    """One process. `patience_s` is how long it may take to end when it is asked to.

    `foundation`: others stand on it, so it is stopped after them. `pulses`: it says every second that it runs, and when
    it drains; it takes `--pulse-fd`.
    """

    name: str
    argv: tuple[str, ...]
    patience_s: float = 5.0
    foundation: bool = False
    pulses: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a stack is made of. `server` is the argv that `promigence-server` is run by, `names` the parts of it.

    `redis` is the broker's binary; None where a broker of the operator's own is used.
    """

    directory: Path
    redis: Path | None
    redis_socket: Path
    server: tuple[str, ...]
    names: frozenset[str]


def parts(plan: Plan) -> tuple[Part, ...]:
    """In the order of starting; they all wait for what they need, so nobody waits in between."""
    known = (
        _ours(plan, "api", "serve"),
        # It ends the tasks that it has begun, which last seconds.
        replace(_ours(plan, "worker", "worker", patience_s=20.0), pulses=True),
        _ours(plan, "billing", "billing"),
        _ours(plan, "flower", "flower"),
    )
    ours = tuple(part for part in known if part.name in plan.names)
    if plan.redis is None:
        return ours
    return (Part("redis", redis_argv(plan.redis, plan.redis_socket), foundation=True), *ours)


def redis_argv(binary: Path, socket: Path) -> tuple[str, ...]:
    """A Redis of the stack's own: on a socket that only its user may open, and with nothing on disk."""
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(socket.parent),
        # Bells only: what a restart loses is rung again from the rows.
        "save": "",
        "appendonly": "no",
        # A full Redis refuses a bell, and the refusal is seen; eviction would lose bells unseen.
        "maxmemory": "256mb",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    flat = [word for name, value in options.items() for word in (f"--{name}", value)]
    return (str(binary), *flat)


def _ours(plan: Plan, name: str, command: str, *, patience_s: float = 5.0) -> Part:
    return Part(name, (*plan.server, command, "--dir", str(plan.directory)), patience_s)
