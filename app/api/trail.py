"""What came of each change, noted in the audit log before the answer goes out."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.domain.audit import Entry
from app.errors import Unavailable

log = logging.getLogger(__name__)

End = Callable[[Entry], Awaitable[None]]


class Trail:
    """Note the status of whatever has an `entry` in its state. The entry itself was there before the change."""

    def __init__(self, app: ASGIApp, end: End) -> None:
        self._app = app
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        noted = False

        async def note(status: int) -> None:
            nonlocal noted
            entry = scope["state"].get("entry")
            if entry is None or noted:
                return
            noted = True
            try:
                await self._end(replace(entry, status=status))
            except Unavailable as away:
                # The change is made and in the log; that its outcome is not is no reason to hide the answer.
                log.warning("the outcome of %s was not noted: %s", entry.entry_id, away.code)

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                await note(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except Exception:
            await note(500)
            raise
