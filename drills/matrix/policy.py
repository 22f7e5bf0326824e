"""The drill's own servers that forks may talk to: one that answers, and three that fail as networks do."""

from __future__ import annotations

import contextlib
import http.server
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping

# Both ends of the pair "linger, for no time": what is closed so is reset.
_RESET = struct.pack("ii", 1, 0)


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"yes")

    def log_message(self, *_: object) -> None:
        """The drill's output is its own."""


class _AnswersOnce(_Answers):
    """The first request is answered; then nobody listens any more."""

    def do_GET(self) -> None:
        super().do_GET()
        self.server.shutdown()
        self.server.server_close()


class _Resets(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(65536)
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.request.close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        with contextlib.suppress(OSError):
            super().shutdown_request(request)


@contextlib.contextmanager
def serving() -> Iterator[Mapping[str, str]]:
    """The variable by which a fork finds each, and its `host:port`, for as long as the block runs."""
    with contextlib.ExitStack() as stack:
        refused = stack.enter_context(contextlib.closing(_bound()))
        yield {
            "POLICY": stack.enter_context(_server(_Answers)),
            "POLICY_GONE": stack.enter_context(_server(_AnswersOnce)),
            "POLICY_RESET": stack.enter_context(_server(_Resets)),
            "POLICY_REFUSED": _address(refused),
        }


def _bound() -> socket.socket:
    """A port that is ours and at which nobody listens."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.bind(("127.0.0.1", 0))
    return held


@contextlib.contextmanager
def _server(handler: type[socketserver.BaseRequestHandler]) -> Iterator[str]:
    with _Server(("127.0.0.1", 0), handler) as server:
        address = _address(server.socket)
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name=handler.__name__)
        thread.start()
        try:
            yield address
        finally:
            server.shutdown()
            thread.join()


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()
    return f"{host}:{port}"
