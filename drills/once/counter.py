"""A side effect outside of the guest: an HTTP server that counts, for each command, how often it was asked."""

from __future__ import annotations

import http.server
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

# The path of a question that is answered and not counted.
UNCOUNTED = "open"


class Counts:
    """How often each command asked, and when it first did (the drill's own monotonic clock)."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def note(self, command: str) -> None:
        """One more."""
        with self._lock:
            self._counts[command] += 1
            self._first_s.setdefault(command, time.monotonic())

    def counts(self) -> dict[str, int]:
        """By command."""
        with self._lock:
            return dict(self._counts)

    def first_s(self) -> dict[str, float]:
        """When each was first seen at work."""
        with self._lock:
            return dict(self._first_s)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def counting() -> Iterator[tuple[str, Counts]]:
    """The server's `host:port`, and what it counted, for as long as the block runs."""
    counts = Counts()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.path.strip("/")
            if asked != UNCOUNTED:
                counts.note(asked)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            """The drill's output is its own."""

    with _Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="counter")
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", counts
        finally:
            server.shutdown()
            thread.join()
