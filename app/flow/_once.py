"""A call that is repeated with its idempotency key gets the first answer; shared by the verbs that create."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from app.domain.account import Receipt
from app.errors import Conflict, NotYet
from app.ports import Ports

Answer = dict[str, object]
ReceiptOf = Callable[[Answer], Receipt | None]


class Token(NamedTuple):
    """An idempotency key and the sha256 of the body that came with it."""

    key: str
    body_sha256: str


def once(
    ports: Ports,
    project_id: str,
    token: Token | None,
    effect: Callable[[ReceiptOf], Answer],
) -> Answer:
    """Run `effect`, which writes the receipt of its answer with its rows; or give the answer given before.

    Raises Conflict(idempotency_mismatch) when the key stood for another body.
    """
    if token is None:
        return effect(lambda _: None)
    given = _given(ports, project_id, token)
    if given is not None:
        return given
    try:
        return effect(lambda answer: Receipt(token.key, token.body_sha256, answer))
    except Conflict as race:
        if race.code != "idempotency_race":
            raise
    given = _given(ports, project_id, token)
    if given is None:
        raise NotYet("idempotency_in_progress", "the same call is being made elsewhere")
    return given


def _given(ports: Ports, project_id: str, token: Token) -> Answer | None:
    receipt = ports.receipts.find(project_id, token.key)
    if receipt is None:
        return None
    if receipt.body_sha256 != token.body_sha256:
        raise Conflict(
            "idempotency_mismatch",
            f"idempotency key {token.key!r} was used before with another body; a new call needs a new key",
        )
    return receipt.answer
