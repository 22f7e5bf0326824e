"""A real server on a real socket: a client that is slow to say what it wants is not waited for."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import Mock

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from infra import serve
from infra.serve import HEAD_BYTES, Patient

SOON_S = 0.05
PATIENCE_S = 10.0
MUCH = 32 * 1024 * 1024
ASKED = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def _hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers without reading the body, as a refusal does."""
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"hi"})


async def _much(scope: Scope, receive: Receive, send: Send) -> None:
    """More than any system buffers, in one piece."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": bytes(MUCH)})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(serve, "HEAD_S", SOON_S)
    with served(_hello) as port:
        yield port


@contextmanager
def served(app: ASGIApp) -> Iterator[int]:
    config = uvicorn.Config(
        app,
        port=0,
        http=Patient,
        lifespan="off",
        log_config=None,
        timeout_keep_alive=60,
        h11_max_incomplete_event_size=HEAD_BYTES,
        limit_concurrency=3,
    )
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    serving = threading.Thread(target=server.run, args=([listening],))
    serving.start()
    yield int(listening.getsockname()[1])
    server.should_exit = True
    serving.join(PATIENCE_S)
    listening.close()


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        yield client


def read_answer(client: socket.socket) -> None:
    said = b""
    while not said.endswith(b"hi"):
        said += client.recv(65536)


def rest(client: socket.socket) -> bytes:
    """All that still comes; the server ends it."""
    said = b""
    try:
        while more := client.recv(65536):
            said += more
    except ConnectionResetError:
        pass
    return said


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\n"])
def test_a_head_that_never_ends_is_not_waited_for(port: int, said: bytes) -> None:
    with connected(port) as client:
        client.sendall(said)
        assert rest(client) == b""


def test_a_second_head_on_a_kept_connection_is_not_waited_for_either(port: int) -> None:
    with connected(port) as client:
        client.sendall(ASKED)
        read_answer(client)
        client.sendall(b"GET / HT")
        assert rest(client) == b""


def test_the_rest_of_a_body_that_was_answered_is_not_waited_for(port: int) -> None:
    with connected(port) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
        read_answer(client)
        client.sendall(b"x")
        assert rest(client) == b""


@pytest.mark.parametrize("last", [b"", b"Connection: close\r\n"])
def test_an_answer_that_nobody_takes_is_given_up(
    monkeypatch: pytest.MonkeyPatch, last: bytes
) -> None:
    lost = threading.Event()

    def noted(protocol: Patient, why: Exception | None) -> None:
        connection_lost(protocol, why)
        lost.set()

    connection_lost = Patient.connection_lost
    monkeypatch.setattr(Patient, "connection_lost", noted)
    monkeypatch.setattr(serve, "SLOWEST_READ_S", SOON_S)
    with served(_much) as port, connected(port) as client:
        client.sendall(ASKED[:-2] + last + b"\r\n")
        assert lost.wait(PATIENCE_S)


def test_one_of_which_something_is_taken_each_time_is_waited_for() -> None:
    looks: list[Callable[[], None]] = []
    transport = Mock(get_write_buffer_size=Mock(side_effect=[100, 90, 90, 10, 10, 10]))
    loop = Mock(call_later=lambda _, call, *args: looks.append(partial(call, *args)))
    reader = Patient(
        uvicorn.Config(_hello, lifespan="off", log_config=None), ServerState(), {}, loop
    )
    reader.transport = transport
    reader._watch_reader()
    for taken in (True, True, False):
        looks.pop()()
        assert transport.abort.called is not taken
    assert looks == []


def test_an_endless_head_is_refused_before_it_is_kept(port: int) -> None:
    with connected(port) as client:
        try:
            for _ in range(100):
                client.sendall(b"x" * 4096)
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert rest(client)[:12] in (b"HTTP/1.1 400", b"")


def test_more_connections_than_there_may_be_are_told_to_come_again(port: int) -> None:
    with connected(port), connected(port), connected(port) as last:
        last.sendall(ASKED)
        assert last.recv(65536).startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize(
    ("files", "allowed", "connections"),
    [
        ((1024, 4096), True, 3584),
        ((1024, 1024), True, 512),
        ((256, 256), True, 1),
        ((1024, 1 << 20), True, 16_384),
        ((1024, resource.RLIM_INFINITY), True, 16_384),
        ((1024, 1 << 20), False, 512),
    ],
)
def test_there_are_no_more_connections_than_files_to_be_opened(
    monkeypatch: pytest.MonkeyPatch, files: tuple[int, int], allowed: bool, connections: int
) -> None:
    def raised(_which: int, _limits: tuple[int, int]) -> None:
        if not allowed:
            raise PermissionError

    monkeypatch.setattr("infra.serve.resource.getrlimit", lambda _which: files)
    monkeypatch.setattr("infra.serve.resource.setrlimit", raised)
    assert serve.connections(16_384) == connections
