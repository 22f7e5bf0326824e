"""A store whose hosts' verbs go through these hosts' logins: what a host may not do fails the test that needs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import select

from app.domain.run import Claimed
from infra.store import Stores
from infra.store.tables import attempts, builds, forks

# What a host's worker does, by the store's nouns; all else is the control plane's.
HOST_VERBS = {
    "attempts": frozenset(
        ("open", "checking", "checked", "ready", "keep", "close", "get", "held_by", "adopt")
    ),
    "execs": frozenset(("intend", "finish", "note", "unfinished", "queued_for")),
    "builds": frozenset(("find", "say", "advance", "frozen", "accept", "refuse")),
    "hosts": frozenset(
        (
            *("register", "heartbeat", "give_notice", "withdraw_notice"),
            *("begin_test", "end_test", "hold"),
        )
    ),
    "warm": frozenset(("needs",)),
    "workers": frozenset(("begin", "on")),
}


class Through:
    """One noun of the store: a host's verb by that host's login, every other by the owner's."""

    def __init__(self, noun: str, own: Stores, of: Callable[[str], Stores]) -> None:
        self._noun, self._own, self._of = noun, own, of

    def __getattr__(self, verb: str) -> Any:
        if verb not in HOST_VERBS[self._noun]:
            return getattr(getattr(self._own, self._noun), verb)
        return lambda *given, **more: self._by_host(verb, *given, **more)

    def _by_host(self, verb: str, *given: Any, **more: Any) -> Any:
        host_id = _host_of(self._own, given[0])
        store = self._own if host_id is None else self._of(host_id)
        return getattr(getattr(store, self._noun), verb)(*given, **more)


def as_hosts(own: Stores, of: Callable[[str], Stores]) -> Stores:
    """`of` gives the store that a host's login opens."""
    through: dict[str, Any] = {noun: Through(noun, own, of) for noun in HOST_VERBS}
    return replace(own, **through)


def _host_of(own: Stores, named: Any) -> str | None:
    """Whose call it is, by its first argument; nobody's if that is not placed anywhere."""
    if isinstance(named, Claimed):
        return named.attempt.host_id
    if not isinstance(named, str):
        return str(named.host_id)
    of_attempt = select(attempts.c.host_id).where(attempts.c.attempt_id == named)
    of_build = (
        select(forks.c.host_id)
        .join(builds, builds.c.template_fork_id == forks.c.fork_id)
        .where(builds.c.build_id == named)
    )
    with own.database.read() as at:
        for asked in (of_attempt, of_build):
            row = at.execute(asked).one_or_none()
            if row is not None:
                return None if row.host_id is None else str(row.host_id)
    return named if named.startswith("host") else None
