"""Logins and secrets in memory: any verb can be made to fail before it acts, or after."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.domain.access import HostAccess, host_named
from app.errors import Unavailable


@dataclass(slots=True)
class Faults:
    """The next calls of these verbs fail: `before` they did anything, or `after` they did it all."""

    before: set[str] = field(default_factory=set)
    after: set[str] = field(default_factory=set)

    def strike(self, verb: str, when: set[str]) -> None:
        """Fail once if this is a verb that is to fail."""
        if verb in when:
            when.discard(verb)
            raise Unavailable("store_away", f"it does not answer {verb}")


@dataclass(slots=True)
class FakeLogins:
    """`app.ports.access.Logins`: `opens` says what a real store would say to a URL.

    `journal` has each call, with its store's name, in the order of all stores that share it.
    """

    store: str = "database"
    faults: Faults = field(default_factory=Faults)
    journal: list[str] = field(default_factory=list)
    _urls: dict[str, str] = field(default_factory=dict)
    _made: int = 0

    def create(self, host_id: str) -> str:
        self.journal.append(f"{self.store} create {host_named(host_id)}")
        self.faults.strike("create", self.faults.before)
        self._made += 1
        self._urls[host_id] = f"{self.store}://{host_id}:password-{self._made}@store"
        self.faults.strike("create", self.faults.after)
        return self._urls[host_id]

    def remove(self, host_id: str) -> None:
        self.journal.append(f"{self.store} remove {host_named(host_id)}")
        self.faults.strike("remove", self.faults.before)
        self._urls.pop(host_id, None)
        self.faults.strike("remove", self.faults.after)

    def list(self) -> tuple[str, ...]:
        self.faults.strike("list", self.faults.before)
        return tuple(sorted(self._urls))

    def opens(self, url: str) -> bool:
        """Whether somebody is let in with this URL now."""
        return url in self._urls.values()


@dataclass(slots=True)
class FakeSecrets:
    """`app.ports.access.Secrets`; `read` is what the host finds."""

    faults: Faults = field(default_factory=Faults)
    journal: list[str] = field(default_factory=list)
    _kept: dict[str, HostAccess] = field(default_factory=dict)

    def put(self, host_id: str, access: HostAccess) -> None:
        self.journal.append(f"secrets put {host_named(host_id)}")
        self.faults.strike("put", self.faults.before)
        self._kept[host_id] = access
        self.faults.strike("put", self.faults.after)

    def delete(self, host_id: str) -> None:
        self.journal.append(f"secrets delete {host_named(host_id)}")
        self.faults.strike("delete", self.faults.before)
        self._kept.pop(host_id, None)
        self.faults.strike("delete", self.faults.after)

    def list(self) -> tuple[str, ...]:
        self.faults.strike("list", self.faults.before)
        return tuple(sorted(self._kept))

    def read(self, host_id: str) -> HostAccess | None:
        """What this host finds; None if there is nothing."""
        return self._kept.get(host_id)
