"""What a host logs in with, where each host has logins of its own: one at the database, one at the queue."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from app.errors import BadRequest

# Queues, roles and users are named after hosts: no wildcard, no quote and no separator of any of them is in a name.
HOST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
# The database's role whose members are the hosts' logins: those are named `promigence_host_<host id>`.
HOST_ROLE = "promigence_host"


@dataclass(frozen=True, slots=True)
class HostAccess:
    """The two URLs of one host, passwords in them: they are shown in no log and no traceback."""

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)


def host_named(host_id: str) -> str:
    """The id again. Raises BadRequest(bad_host_id) where no queue, role or user can be named after it."""
    if HOST_ID.fullmatch(host_id) is None:
        raise BadRequest(
            "bad_host_id",
            "a host's id has 1 to 64 characters out of letters, digits, `.`, `_` and `-`",
            host_id=host_id[:100],
        )
    return host_id
