"""Keys that a project makes for itself."""

from __future__ import annotations

from collections.abc import Iterable

from app.domain.account import Caller, Scope
from app.errors import Conflict
from app.flow._once import Answer, ReceiptOf, Token, once
from app.ports import Ports


def create(
    ports: Ports,
    caller: Caller,
    name: str,
    scopes: Iterable[Scope],
    expires_s: float | None,
    token: Token | None,
) -> Answer:
    """A key of the caller's project with its secret, which no receipt keeps.

    It has no scope that the caller lacks, and does not outlive the caller's key.
    Raises Forbidden(missing_scope), Conflict(secret_shown_once, idempotency_mismatch), and Unauthorized(revoked_key)
    when the caller's key was revoked while it was calling.
    """
    given = tuple(scopes)
    caller.may_give(given)
    secrets: list[str] = []

    def effect(receipt_of: ReceiptOf) -> Answer:
        key, secret = ports.keys.create(
            caller.project_id,
            name,
            given,
            expires_s,
            maker=caller.key_id,
            receipt_of=lambda key: receipt_of(key.as_dict()),
        )
        secrets.append(secret)
        return key.as_dict()

    told = once(ports, caller.project_id, token, effect)
    if not secrets:
        raise Conflict(
            "secret_shown_once",
            f"this call has made {told['key_id']} before, and its secret was in that answer: if that was lost, revoke "
            "the key and make another",
            key_id=told["key_id"],
        )
    return {**told, "secret": secrets[0]}
