"""What a fork may reach: `host:port` targets, each allowed by one of the operator's patterns, or refused by name.

A pattern is a target whose host may be `*` or begin with `*.` (any name below it, not the name itself) and whose port
may be `*`. This decides what may be asked for; the proxy checks the resolved address again at each connection.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

from app.errors import BadRequest, Forbidden

# What a proxy's line says of a target that nobody allowed: no fault of anybody's.
REFUSED = "refused"
_PORT = re.compile(r"[0-9]{1,5}")
_NAME = re.compile(r"(?!.*\.\.)[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?", re.ASCII)


def check(targets: Iterable[str], allowed: Iterable[str]) -> None:
    """Every target is allowed by some pattern. Raises Forbidden(egress_not_allowed) naming the first that is not."""
    patterns = [_split(pattern) for pattern in allowed]
    for target in targets:
        host, port = host_and_port(target)
        if not any(_allows(pattern, host, str(port)) for pattern in patterns):
            raise Forbidden(
                "egress_not_allowed",
                f"{target} is not on the operator's egress allow-list; ask for it to be added",
                target=target,
            )


def host_and_port(target: str) -> tuple[str, int]:
    """`policy.internal:8000` or `[fd00::1]:443` -> host (lower case, no brackets) and port.

    Raises BadRequest(bad_egress): only whole names and addresses are targets, with a port from 1 to 65535.
    """
    host, port = _split(target)
    if not (_PORT.fullmatch(port) and 1 <= int(port) <= 65535):
        raise _bad(target)
    if not _NAME.fullmatch(host) and _address(host) is None:
        raise _bad(target)
    return host, int(port)


def lost_while(
    lines: Iterable[Mapping[str, str]], began_boot_ns: int, ended_boot_ns: int
) -> list[Mapping[str, str]]:
    """The faults of allowed targets in a proxy's lines that lie between two moments, at least in part: not refusals.

    What a machine meets before a command began, or after it ended, is nothing that the command met.
    """
    return [
        line
        for line in lines
        if line["what"] != REFUSED
        and int(line["at_boot_ns"]) >= began_boot_ns
        and int(line["since_boot_ns"]) <= ended_boot_ns
    ]


def _split(text: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise _bad(text)
    if host.startswith("[") and host.endswith("]"):
        return str(_address(host[1:-1]) or host), port
    if ":" in host:
        raise _bad(text)
    return host.lower().removesuffix("."), port


def _allows(pattern: tuple[str, str], host: str, port: str) -> bool:
    pattern_host, pattern_port = pattern
    if pattern_port not in ("*", port):
        return False
    if pattern_host.startswith("*."):
        return host.endswith(pattern_host[1:])
    return pattern_host in ("*", host)


def _address(host: str) -> ipaddress.IPv6Address | None:
    """An address of a name's shape (IPv4) needs no look; a scope (`%eth0`) means nothing on another machine."""
    try:
        return ipaddress.IPv6Address(host) if "%" not in host else None
    except ValueError:
        return None


def _bad(target: str) -> BadRequest:
    return BadRequest("bad_egress", f"{target[:100]!r} is not host:port")
