"""The demo's policy server: it stands where the model that is trained would stand.

    POST /patch  {"fork_index", "instruction", "path", "source"}  ->  {"patch": "unified diff"}
    GET  /tests                                                   ->  {"tests": "source of the hidden tests"}

Which patch a fork gets follows from its index alone, so the demo can say beforehand what the report
has to hold. One index is kept waiting, so that its machine can be killed in mid-command.

    python -m demo.policy
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from demo.environment import prepare

PATCHES = Path(__file__).parent / "patches"
CYCLE = ("right_after", "wrong_one_end", "right_before", "right_after", "wrong_clamps")
SLOW_INDEX = 7
SLOW_ANSWER_SECONDS = 300
QUESTION_LIMIT_BYTES = 1 << 20


def patch_name(fork_index: int) -> str:
    """The file in patches/ that this fork gets."""
    return CYCLE[fork_index % len(CYCLE)]


def expected_outcome(fork_index: int) -> str:
    """What the report has to say of this fork, unless its machine is killed."""
    return "passed" if patch_name(fork_index).startswith("right") else "failed"


class Policy(ThreadingHTTPServer):
    """The server. `slow_asked` is set once the fork that is kept waiting has asked for its patch."""

    daemon_threads = True

    def __init__(self, hidden_tests: str, slow_index: int | None, host: str) -> None:
        super().__init__((host, 0), _Handler)
        self.hidden_tests = hidden_tests
        self.slow_index = slow_index
        self.slow_asked = threading.Event()
        self.closing = threading.Event()

    @property
    def address(self) -> str:
        """As an egress rule has it: host:port."""
        return f"{self.server_address[0]!s}:{self.server_port}"

    def patch_for(self, fork_index: int) -> str:
        """The patch of this fork; the slow one's comes late, or when the server closes."""
        if fork_index == self.slow_index:
            self.slow_asked.set()
            self.closing.wait(SLOW_ANSWER_SECONDS)
        return (PATCHES / f"{patch_name(fork_index)}.patch").read_text()


@contextmanager
def serving(
    hidden_tests: str, slow_index: int | None = SLOW_INDEX, host: str = "127.0.0.1"
) -> Iterator[Policy]:
    """Serve on a free port of an address of this machine until the block is left. `hidden_tests` is their source."""
    with Policy(hidden_tests, slow_index, host) as policy:
        thread = threading.Thread(target=policy.serve_forever, kwargs={"poll_interval": 0.1})
        thread.start()
        try:
            yield policy
        finally:
            policy.closing.set()
            policy.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Policy
    timeout = 60

    def do_GET(self) -> None:
        if self.path != "/tests":
            return self._answer(404, {"error": "unknown path"})
        return self._answer(200, {"tests": self.server.hidden_tests})

    def do_POST(self) -> None:
        if self.path != "/patch":
            return self._answer(404, {"error": "unknown path"})
        try:
            index = _fork_index(self.rfile.read(self._length()))
        except ValueError as error:
            return self._answer(400, {"error": str(error)})
        return self._answer(200, {"patch": self.server.patch_for(index)})

    def _length(self) -> int:
        length = int(self.headers.get("Content-Length", "0"))
        if not 0 < length <= QUESTION_LIMIT_BYTES:
            raise ValueError(f"a question has 1 to {QUESTION_LIMIT_BYTES} bytes")
        return length

    def _answer(self, status: int, answer: dict[str, str]) -> None:
        body = json.dumps(answer).encode()
        # The machine that asked may have been killed meanwhile.
        with suppress(ConnectionError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: the demo's progress bar has the terminal."""


def _fork_index(body: bytes) -> int:
    question = json.loads(body)
    index = question.get("fork_index") if isinstance(question, dict) else None
    if not isinstance(index, int) or index < 0:
        raise ValueError("fork_index is a whole number from 0")
    return index


def main() -> None:
    """Serve until interrupted."""
    with serving((prepare() / "hidden" / "test_hidden.py").read_text(), slow_index=None) as policy:
        print(f"http://{policy.address}", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
