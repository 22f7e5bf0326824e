"""The calls of the client about who may do what: keys, and the log of what they changed. All need the scope admin."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from promigence._engine import Engine
from promigence._steps import access
from promigence.types import AuditEntry, Key, NewKey, Scope

__all__ = ["Audit", "Keys"]


class Keys:
    """The keys of the project."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list(self) -> list[Key]:
        """All of them, revoked ones too, in the order in which they were made."""
        return self._engine.run(access.keys(self._engine.terms()))

    def create(
        self, name: str, scopes: Sequence[Scope], *, expires_days: float | None = None
    ) -> NewKey:
        """A new key with its `secret`, which the server does not keep: this answer is the only one that has it.

        No scope implies another. Raises Forbidden (`missing_scope`) for a scope that the client's own key lacks;
        Conflict (`secret_shown_once`, with `key_id` in its details) when the answer was lost on its way: revoke that
        key and make another.
        """
        terms = self._engine.terms()
        steps = access.create(name, scopes, expires_days, str(uuid.uuid4()), terms)
        return self._engine.run(steps)

    def revoke(self, key_id: str) -> Key:
        """Let a key open nothing any more. Twice is safe.

        Raises Conflict (`last_admin_key`) for the last live one with the scope admin, NotFound (`unknown_key`).
        """
        return self._engine.run(access.revoke(key_id, self._engine.terms()))


class Audit:
    """Who changed what in the project."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list(
        self,
        *,
        key: str | None = None,
        action: str | None = None,
        from_: str | None = None,
        until: str | None = None,
        limit: int | None = 100,
    ) -> list[AuditEntry]:
        """The newest `limit` entries, newest first; all of them with None.

        `key` is the id of the key that did it (or `operator:NAME`), `action` the word of an entry; `from_` and `until`
        are dates or instants.
        """
        terms = self._engine.terms()
        return self._engine.run(access.audit(key, action, from_, until, limit, terms))
