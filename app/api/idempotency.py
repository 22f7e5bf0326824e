"""What a repeated POST is recognised by: its key, and a digest of its path and its body's meaning."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from fastapi import Depends, Header, Request
from pydantic import StringConstraints

from app.flow._once import Token

IdempotencyKey = Annotated[str | None, Header(), StringConstraints(pattern=r"^[ -~]{1,128}$")]


async def _token(request: Request, idempotency_key: IdempotencyKey = None) -> Token | None:
    """None without a key: then the call happens each time. Raises nothing that reading the body did not raise."""
    if idempotency_key is None:
        return None
    body = await request.body()
    meant = json.dumps(json.loads(body), sort_keys=True) if body else ""
    digest = hashlib.sha256(f"{request.url.path}\n{meant}".encode())
    return Token(idempotency_key, digest.hexdigest())


Idempotent = Annotated[Token | None, Depends(_token)]
