"""What a repeated POST is recognised by: its key, and a digest of its path and its body's meaning."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Header, Request
from pydantic import StringConstraints

from app.flow._once import Answer, ReceiptOf, Token, once
from app.ports import Ports

IdempotencyKey = Annotated[str | None, Header(), StringConstraints(pattern=r"^[ -~]{1,128}$")]


async def _token(request: Request, idempotency_key: IdempotencyKey = None) -> Token | None:
    """None without a key: then the call happens each time. Raises nothing that reading the body did not raise."""
    if idempotency_key is None:
        return None
    meant = _meaning(await request.body())
    digest = hashlib.sha256(request.url.path.encode() + b"\n" + meant)
    return Token(idempotency_key, digest.hexdigest())


def _meaning(body: bytes) -> bytes:
    """JSON without the order of its keys and its spaces; what is no JSON is itself."""
    try:
        return json.dumps(json.loads(body), sort_keys=True).encode()
    except (ValueError, RecursionError):
        return body


Idempotent = Annotated[Token | None, Depends(_token)]


def remembered(
    ports: Ports, project_id: str, token: Token | None, act: Callable[[], Answer]
) -> Answer:
    """For what is safe to do twice: its answer is kept after the deed, and given again to the same call.

    Raises Conflict(idempotency_mismatch) when the key stood for another call.
    """

    def effect(receipt_of: ReceiptOf) -> Answer:
        answer = act()
        receipt = receipt_of(answer)
        if receipt is not None:
            ports.receipts.keep(project_id, receipt)
        return answer

    return once(ports, project_id, token, effect)
