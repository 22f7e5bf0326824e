"""Who calls: a project's key; and what a repeated call is recognised by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """An API key as it may be listed; its secret is stored only as a hash and shown once."""

    key_id: str
    project_id: str
    name: str
    prefix: str
    created_ns: int
    revoked_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """An idempotency key with the body it stood for and the answer that its first use got; kept for 24 h."""

    key: str
    body_sha256: str
    answer: dict[str, object]
