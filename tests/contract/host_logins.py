"""Hosts' logins at a real PostgreSQL, and what they open."""

from __future__ import annotations

from infra.access.postgres import PostgresLogins
from infra.fakes.clock import ManualClock
from infra.store import Stores, create_store


class HostLogins:
    """The logins of the hosts of one database, made when they are first asked for."""

    def __init__(self, owner_url: str, clock: ManualClock) -> None:
        self.clock = clock
        self._logins = PostgresLogins(owner_url)
        self._urls: dict[str, str] = {}
        self._stores: dict[str, Stores] = {}

    def url(self, host_id: str) -> str:
        """What this host logs in with."""
        if host_id not in self._urls:
            self._urls[host_id] = self._logins.create(host_id)
        return self._urls[host_id]

    def store(self, host_id: str) -> Stores:
        """The store that it opens."""
        if host_id not in self._stores:
            self._stores[host_id] = create_store(self.url(host_id), now_ns=self.clock.wall_ns)
        return self._stores[host_id]

    def close(self) -> None:
        for store in self._stores.values():
            store.close()
        for host_id in self._urls:
            self._logins.remove(host_id)
