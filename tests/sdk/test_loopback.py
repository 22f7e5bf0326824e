"""What only a real connection shows: keep-alive, time limits, bodies that break off."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from promigence import DeadlineExceeded, Promigence, ServerUnreachable
from promigence._engine import Pace
from tests.sdk import shapes

Play = Callable[["Handler"], None]


class Server(ThreadingHTTPServer):
    """Plays one scene for each request; `done` is set at the end, for scenes that hold a request until then."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.done = threading.Event()
        self.scenes: list[Play] = []
        self.peers: list[int] = []
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def do_GET(self) -> None:
        self.server.peers.append(self.client_address[1])
        self.server.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        scene = self.server.scenes.pop(0) if len(self.server.scenes) > 1 else self.server.scenes[0]
        scene(self)

    do_POST = do_PUT = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""

    def answer(self, body: bytes, **headers: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", headers.pop("length", str(len(body))))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.done.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(server: Server) -> Iterator[Promigence]:
    with Promigence("k", server.url, timeout=10) as client:
        yield client


def says(body: object) -> Play:
    return lambda handler: handler.answer(json.dumps(body).encode())


def holds(handler: Handler) -> None:
    handler.server.done.wait()
    handler.close_connection = True


def drips(handler: Handler) -> None:
    """A byte at a time, quickly, without end: no single read is slow."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000000")
    handler.end_headers()
    while not handler.server.done.wait(0.005):
        handler.wfile.write(b" ")


def breaks_off(handler: Handler) -> None:
    handler.answer(b"half", length="8")
    handler.close_connection = True


def quick(base_url: str, timeout: float) -> Promigence:
    return Promigence("k", base_url, timeout=timeout)


def test_one_connection_serves_many_calls(server: Server, client: Promigence) -> None:
    server.scenes = [says(shapes.exec_result())]
    for _ in range(5):
        client.forks.exec("f-1", {"sh": "true"})
    assert len(server.peers) == 5
    assert len(set(server.peers)) == 1


def test_a_connection_that_the_server_closed_is_made_anew(
    server: Server, client: Promigence
) -> None:
    def says_and_closes(handler: Handler) -> None:
        says(shapes.run(passed=1))(handler)
        handler.close_connection = True

    server.scenes = [says_and_closes]
    assert client.runs.get("r-1")["final"]
    assert client.runs.get("r-1")["final"]
    assert len(set(server.peers)) == 2


def test_threads_share_a_client(server: Server, client: Promigence) -> None:
    server.scenes = [says(shapes.exec_result())]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: client.forks.exec("f-1", {"sh": "true"}), range(32)))
    assert [result["exit_code"] for result in results] == [0] * 32
    assert len(set(server.peers)) <= 8


@pytest.mark.parametrize("scene", [holds, drips])
def test_the_deadline_holds_against_a_silent_and_a_dripping_server(
    server: Server, scene: Play
) -> None:
    server.scenes = [scene]
    with quick(server.url, 0.3) as client, pytest.raises(DeadlineExceeded):
        client.runs.get("r-1")


def test_nobody_listening_is_told_with_the_address() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_port
    pace = Pace(sleep=lambda seconds: None, clock=iter(range(10_000)).__next__)
    with (
        Promigence("k", f"http://127.0.0.1:{port}", pace=pace) as client,
        pytest.raises(ServerUnreachable, match=f"cannot reach http://127.0.0.1:{port}"),
    ):
        client.runs.get("r-1")


def test_a_proxy_of_the_environment_is_not_asked_about_this_machine(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server.scenes = [says(shapes.run(passed=1))]
    with quick(server.url, 10) as client:
        assert client.runs.get("r-1")["final"]


def test_a_download_that_breaks_off_is_begun_again(
    server: Server, client: Promigence, tmp_path: Path
) -> None:
    server.scenes = [breaks_off, lambda handler: handler.answer(b"whole")]
    target = tmp_path / "out"
    assert client.forks.download("f-1", "/x", target)["bytes"] == 5
    assert target.read_bytes() == b"whole"


def test_a_download_that_never_gets_whole_leaves_what_was_there(
    server: Server, client: Promigence, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    target.write_text("before")
    server.scenes = [drips]
    with pytest.raises(DeadlineExceeded):
        client.forks.download("f-1", "/x", target, timeout=0.3)
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_large_file_is_streamed_both_ways(
    server: Server, client: Promigence, tmp_path: Path
) -> None:
    local = tmp_path / "large"
    local.write_bytes(bytes(range(256)) * 32_768)
    server.scenes = [
        says({"bytes": 8 << 20, "sha256": "0" * 64}),
        lambda handler: handler.answer(local.read_bytes()),
    ]
    client.forks.upload("f-1", local, "/large")
    assert server.bodies[0] == local.read_bytes()
    client.forks.download("f-1", "/large", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == local.read_bytes()
