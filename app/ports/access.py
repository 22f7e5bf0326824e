"""How a host gets its credentials: logins at the database and at the queue, and a place where it finds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.domain.access import HostAccess


def _nothing() -> None:
    """Where a login is there as soon as it was made."""


class Logins(Protocol):
    """The hosts' users of one store (the database, the queue): each reaches what is its own host's there.

    Other users of the store are never touched, nor those of another deployment. Every verb raises
    BadRequest(bad_host_id) for an id that is none, Unavailable where the store does not answer, Forbidden(not_admin)
    where who asks may not manage users. What failed may have been done all the same; the same call does the rest.
    """

    def create(self, host_id: str) -> str:
        """Let this host in, and return the URL that it logs in with: its password is new each time.

        Twice is safe: the URL before opens nothing more, at once. Raises Unavailable(login_pending) where the store is
        still busy with the call before.
        """
        ...

    def remove(self, host_id: str) -> None:
        """Shut this host out, and end the connections that it has. Twice is safe, and so is a host that is unknown."""
        ...

    def list(self) -> tuple[str, ...]:
        """The ids of all hosts that have a login here, in order."""
        ...


class Secrets(Protocol):
    """Where a host finds its access, and nobody else does. Raises Unavailable, and CloudRefused with a code of the
    cloud's.
    """

    def put(self, host_id: str, access: HostAccess) -> None:
        """Keep it for this host, in place of what was kept for it before."""
        ...

    def delete(self, host_id: str) -> None:
        """Keep nothing for this host any more. Twice is safe."""
        ...

    def list(self) -> tuple[str, ...]:
        """The ids of all hosts for which something is kept, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Access:
    """Where hosts have logins of their own, and where each finds its access; `secrets` None: whoever asks hands it on.

    `settle` lets in those whose logins were made since, at a store that takes its time for it.
    """

    database: Logins
    queue: Logins
    secrets: Secrets | None = None
    settle: Callable[[], None] = _nothing
