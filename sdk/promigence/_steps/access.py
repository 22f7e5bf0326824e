"""The steps of keys and of the audit log."""

from __future__ import annotations

from collections.abc import Sequence

from promigence._protocol import Request, path_of, query_of
from promigence._steps.calls import Steps, Terms, call_for, pages
from promigence.types import AuditEntry, Key, NewKey, Scope


def keys(terms: Terms) -> Steps[list[Key]]:
    return pages(Request("GET", path_of("keys")), "keys", Key, None, terms)


def create(
    name: str, scopes: Sequence[Scope], expires_days: float | None, key: str, terms: Terms
) -> Steps[NewKey]:
    body: dict[str, object] = {"name": name, "scopes": list(scopes)}
    if expires_days is not None:
        body["expires_days"] = expires_days
    request = Request("POST", path_of("keys"), json=body, idempotency_key=key)
    return call_for(request, NewKey, terms)


def revoke(key_id: str, terms: Terms) -> Steps[Key]:
    return call_for(Request("DELETE", path_of("keys", key_id)), Key, terms)


def audit(
    key: str | None,
    action: str | None,
    begin: str | None,
    until: str | None,
    limit: int | None,
    terms: Terms,
) -> Steps[list[AuditEntry]]:
    query = query_of(**{"key": key, "action": action, "from": begin, "until": until})
    return pages(Request("GET", path_of("audit"), query), "entries", AuditEntry, limit, terms)
