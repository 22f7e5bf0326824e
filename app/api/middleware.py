"""Around every route, in this order: the envelope, who calls, how often (`limits`), how much may come in. Plain ASGI,
for the exec path's sake.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable

from anyio import fail_after
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.bodies import MAX_FILE_BYTES
from app.api.errors import Refused, TooLong, TooSlow, answer, internal
from app.api.limits import WrongKeys
from app.domain.account import Caller
from app.errors import PromigenceError, TooLarge, Unauthorized
from app.ids import new_id

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
MAX_JSON_BYTES = 4 * 1024 * 1024
MAX_SECRET_CHARS = 512
MAX_URL_BYTES = 8 * 1024
# A whole body that is not a file: 4 MiB in this time is a slow line.
BODY_S = 30.0
# Where bytes come in, each read by its route a piece at a time; every other body is JSON, and whole in memory.
_FILES = re.compile(r"/v1/(files/[^/]+|forks/[^/]+/files)")

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Envelope:
    """Give every answer its request id and headers, and every fault of ours an answer that tells nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = new_id("req")
        scope.setdefault("state", {})["request_id"] = request_id
        started = False
        url_bytes = len(scope.get("raw_path", b"")) + len(scope["query_string"])

        async def send_in_envelope(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers.update(HEADERS)
            await send(message)

        if url_bytes > MAX_URL_BYTES:
            await answer(_too_long(), request_id)(scope, receive, send_in_envelope)
            return
        try:
            await self._app(scope, receive, send_in_envelope)
        except Exception:  # whatever it was, it is ours; the caller learns the request's id
            log.exception("request %s failed", request_id)
            if started:
                raise  # the server breaks the connection: half an answer never looks whole
            await internal(request_id)(scope, receive, send_in_envelope)


class Authenticate:
    """Find out who calls before anything of the request is read: `caller` in its state. One answer for every wrong
    key.
    """

    def __init__(
        self,
        app: ASGIApp,
        caller_of: Callable[[str], Awaitable[Caller]],
        wrong_keys: WrongKeys,
    ) -> None:
        self._app = app
        self._caller_of = caller_of
        self._wrong_keys = wrong_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            scope["state"]["caller"] = await self._caller(Headers(scope=scope), _address(scope))
        except PromigenceError as error:
            await answer(error, scope["state"]["request_id"])(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _caller(self, headers: Headers, address: str) -> Caller:
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        self._wrong_keys.need_patience(address, secret)
        try:
            if scheme.lower() != "bearer" or not 0 < len(secret) <= MAX_SECRET_CHARS:
                raise _unauthorized()
            caller = await self._caller_of(secret)
        except Unauthorized:
            self._wrong_keys.failed(address, secret)
            raise _unauthorized() from None
        self._wrong_keys.opened(secret)
        return caller


class BodyLimit:
    """Count a body while it comes in; refuse it at the byte that is too many, or before the first by its length, and
    one that is no file (a file has its own patience) when it takes too long.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = MAX_FILE_BYTES if _takes_a_file(scope) else MAX_JSON_BYTES
        said = Headers(scope=scope).get("content-length", "")
        if said.isdecimal() and (len(said) > 18 or int(said) > limit):
            refused = answer(_too_large(limit), scope["state"]["request_id"])
            await refused(scope, receive, send)
            return
        read, is_whole = 0, _takes_a_file(scope)
        until = time.monotonic() + BODY_S

        async def receive_counted() -> Message:
            nonlocal read, is_whole
            if is_whole:
                message = await receive()
            else:
                message = await _in_time(receive, until)
                is_whole = not message.get("more_body", False)
            read += len(message.get("body", b""))
            if read > limit:
                raise Refused(_too_large(limit))
            return message

        await self._app(scope, receive_counted, send)


async def _in_time(receive: Receive, until: float) -> Message:
    try:
        with fail_after(max(0.0, until - time.monotonic())):
            return await receive()
    except TimeoutError:
        slow = TooSlow("body_too_slow", f"the body did not come within {BODY_S:.0f} s")
        raise Refused(slow) from None


def _address(scope: Scope) -> str:
    """Who is at the other end; a balancer's word for it, where the server believes that balancer."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _takes_a_file(scope: Scope) -> bool:
    return bool(scope["method"] == "PUT" and _FILES.fullmatch(scope["path"]))


def _too_large(limit: int) -> TooLarge:
    return TooLarge("too_large", f"the body is over {limit} bytes", limit_bytes=limit)


def _too_long() -> TooLong:
    return TooLong("url_too_long", f"a path with its query has at most {MAX_URL_BYTES} bytes")


def _unauthorized() -> Unauthorized:
    return Unauthorized(
        "unauthorized",
        "send a valid API key as `Authorization: Bearer KEY`; it may be revoked or over",
    )
