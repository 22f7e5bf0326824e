"""How metrics are asked for: `GET /metrics` with the operator's token, on the API's port or one of a worker's own."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import structlog
from anyio import to_thread
from prometheus_client import CONTENT_TYPE_LATEST

PATH = "/metrics"
SCRAPE_TIMEOUT_S = 10.0
# While a worker is replaced, its port is the old one's until that has gone.
AGAIN_S = 2.0

Text = Callable[[], bytes]
Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = structlog.get_logger(__name__)


class Guarded:
    """An ASGI application with `/metrics` in front of it: no API key opens that, and the token opens nothing else."""

    def __init__(self, app: App, text: Text, token: str) -> None:
        self._app = app
        self._text = text
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer for the one path; everything else is the application's."""
        if scope["type"] != "http" or scope["path"] != PATH:
            await self._app(scope, receive, send)
            return
        said = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        status = _status(scope["method"], said, self._token)
        # The rows are read on the way: never on the loop that serves everybody.
        body = await to_thread.run_sync(self._text) if status is HTTPStatus.OK else b""
        headers = [(name.lower().encode(), text.encode()) for name, text in _headers(status, body)]
        await send({"type": "http.response.start", "status": int(status), "headers": headers})
        await send(
            {"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body}
        )


@contextmanager
def served(text: Text, host: str, port: int, token: str | None) -> Iterator[None]:
    """Inside, a thread answers `/metrics` on this address; without a token nobody does.

    A port that another process has is waited for, and the work inside does not wait with it.
    """
    if token is None:
        yield
        return
    over = threading.Event()
    serving = threading.Thread(
        target=_serve, args=(text, host, port, token, over), name="metrics", daemon=True
    )
    serving.start()
    try:
        yield
    finally:
        over.set()
        serving.join(timeout=5)


def _serve(text: Text, host: str, port: int, token: str, over: threading.Event) -> None:
    server = _bound(text, host, port, token, over)
    if server is None:
        return
    with server:
        answering = threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True)
        answering.start()
        over.wait()
        server.shutdown()
        answering.join(timeout=5)


def _bound(
    text: Text, host: str, port: int, token: str, over: threading.Event
) -> ThreadingHTTPServer | None:
    told = False
    while not over.is_set():
        try:
            return _Server((host, port), _handler(text, token))
        except OSError as error:
            if not told:
                log.warning("metrics_port_taken", port=port, error=error.strerror)
            told = True
        over.wait(AGAIN_S)
    return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 16


def _handler(text: Text, token: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SCRAPE_TIMEOUT_S
        server_version = "promigence"
        sys_version = ""

        def do_GET(self) -> None:
            said = self.headers.get("authorization", "")
            status = _status("GET", said, token)
            if self.path.partition("?")[0] != PATH:
                status = HTTPStatus.NOT_FOUND if status is HTTPStatus.OK else status
            body = text() if status is HTTPStatus.OK else b""
            self.send_response(status)
            for name, value in _headers(status, body):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """A scrape every few seconds is no news."""

    return Handler


def _status(method: str, said: str, token: str) -> HTTPStatus:
    """Who has no token learns nothing, not even what may be asked."""
    scheme, _, secret = said.partition(" ")
    known = hmac.compare_digest(secret.encode("latin-1", "replace"), token.encode())
    if scheme.lower() != "bearer" or not known:
        return HTTPStatus.UNAUTHORIZED
    return HTTPStatus.OK if method in ("GET", "HEAD") else HTTPStatus.METHOD_NOT_ALLOWED


def _headers(status: HTTPStatus, body: bytes) -> list[tuple[str, str]]:
    headers = [("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
    if status is HTTPStatus.OK:
        headers.append(("Content-Type", CONTENT_TYPE_LATEST))
    if status is HTTPStatus.UNAUTHORIZED:
        headers.append(("WWW-Authenticate", "Bearer"))
    return headers
