"""Keys of a project, and the log of who changed what."""

from __future__ import annotations

from typing import Literal, TypedDict

Scope = Literal["read", "run", "build", "admin"]


class Key(TypedDict):
    """A key without its secret. `last_used_at` is to the minute; an end of None is none."""

    key_id: str
    project: str
    name: str
    prefix: str
    scopes: list[Scope]
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None


class NewKey(Key):
    """The only answer that has the secret: the server does not keep it."""

    secret: str


class AuditEntry(TypedDict):
    """One change. `actor` is a key's id, or `operator:` and who gave a command on the server; `outcome` is `unknown`
    where who did it did not live to note it.
    """

    entry_id: str
    at: str
    actor: str
    action: str
    target: str | None
    outcome: Literal["done", "refused", "failed", "unknown"]
    status: int | None
    request_id: str | None
    client: str | None
