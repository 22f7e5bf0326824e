"""Keys of a project, and the log of who changed what."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from app.api.schemas.base import Answer, Body, Instant, Storable
from app.domain.account import MAX_KEY_DAYS, MAX_KEY_NAME, Scope

DAY_S = 24 * 3600

KeyName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_KEY_NAME), Storable]
ScopeWord = Literal["read", "run", "build", "admin"]


class KeyBody(Body):
    """No scope implies another: a trainer's key has `read` and `run`."""

    name: KeyName
    scopes: Annotated[list[ScopeWord], Field(min_length=1, max_length=4)]
    expires_days: Annotated[float, Field(gt=0, le=MAX_KEY_DAYS)] | None = None

    def given(self) -> tuple[Scope, ...]:
        return tuple(map(Scope, self.scopes))

    @property
    def expires_s(self) -> float | None:
        return None if self.expires_days is None else self.expires_days * DAY_S


class Key(Answer):
    """`last_used_at` is to the minute."""

    key_id: str
    project: str
    name: str
    prefix: str
    scopes: list[ScopeWord]
    created_at: Instant
    expires_at: Instant | None
    last_used_at: Instant | None
    revoked_at: Instant | None


class NewKey(Key):
    """The only answer that has the secret: it is not kept."""

    secret: str


class Keys(Answer):
    keys: list[Key]
    next_cursor: str | None


class AuditEntry(Answer):
    """`actor` is a key's id, or `operator:` and who gave a command on the server. `action` is the name of the route or
    of the command. `outcome` unknown: who did it did not live to note what came of it.
    """

    entry_id: str
    at: Instant
    actor: str
    action: str
    target: str | None
    outcome: Literal["done", "refused", "failed", "unknown"]
    status: int | None
    request_id: str | None
    client: str | None


class AuditLog(Answer):
    entries: list[AuditEntry]
    next_cursor: str | None
