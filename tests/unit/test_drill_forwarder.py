"""The drill's forwarder: it carries, refuses, falls silent, and carries again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from drills.forwarder import Forwarder, Outage

PATIENCE_S = 10.0
# Nothing comes out of a silence, however long it is listened to.
SILENCE_S = 0.3


@pytest.fixture
def forwarder(tmp_path: Path) -> Iterator[Forwarder]:
    """In front of a server that gives back what it gets."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "echo"))
    listener.listen()
    thread = threading.Thread(target=serve, args=(listener,))
    thread.start()
    forwarder = Forwarder(tmp_path / "echo")
    try:
        yield forwarder
    finally:
        forwarder.close()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)
        listener.close()


def test_what_is_sent_comes_back(forwarder: Forwarder) -> None:
    with connected(forwarder) as client:
        assert echo(client, b"x" * 200_000) == b"x" * 200_000


def test_when_refused_the_old_connection_breaks_and_no_new_one_is_made(
    forwarder: Forwarder,
) -> None:
    with connected(forwarder) as client:
        echo(client, b"before")
        forwarder.cut(Outage.REFUSED)
        with pytest.raises(ConnectionError):
            connected(forwarder)
        with pytest.raises(ConnectionError):
            read_on(client)


def test_when_silent_connections_are_taken_and_nothing_comes_back_until_it_is_mended(
    forwarder: Forwarder,
) -> None:
    with connected(forwarder) as old:
        echo(old, b"before")
        forwarder.cut(Outage.SILENT)
        with connected(forwarder) as new:
            for client in (old, new):
                client.sendall(b"hello")
                client.settimeout(SILENCE_S)
                with pytest.raises(TimeoutError):
                    client.recv(1)
                client.settimeout(PATIENCE_S)
            forwarder.mend()
            assert received(old, 5) == b"hello"
            assert received(new, 5) == b"hello"


@pytest.mark.parametrize("how", Outage)
def test_after_an_outage_the_same_port_leads_there_again(forwarder: Forwarder, how: Outage) -> None:
    port = forwarder.port
    forwarder.cut(how)
    forwarder.mend()
    forwarder.mend()
    assert forwarder.port == port
    with connected(forwarder) as client:
        assert echo(client, b"again") == b"again"


def test_the_end_of_one_side_is_the_end_of_the_other(forwarder: Forwarder) -> None:
    with connected(forwarder) as client:
        echo(client, b"x")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def connected(forwarder: Forwarder) -> socket.socket:
    return socket.create_connection(("127.0.0.1", forwarder.port), PATIENCE_S)


def echo(client: socket.socket, text: bytes) -> bytes:
    sender = threading.Thread(target=client.sendall, args=(text,))
    sender.start()
    answer = received(client, len(text))
    sender.join(PATIENCE_S)
    return answer


def received(client: socket.socket, size: int) -> bytes:
    """That many bytes, or those before the end."""
    answer = b""
    while len(answer) < size and (chunk := client.recv(size - len(answer))):
        answer += chunk
    return answer


def read_on(client: socket.socket) -> None:
    """Raises ConnectionError when the connection was reset, or is at its end."""
    if client.recv(1) == b"":
        raise ConnectionResetError


def serve(listener: socket.socket) -> None:
    """Until the listener is shut down; each connection in a thread that ends with it."""
    threads = []
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            break
        threads.append(threading.Thread(target=give_back, args=(client,)))
        threads[-1].start()
    for thread in threads:
        thread.join(PATIENCE_S)


def give_back(client: socket.socket) -> None:
    with client:
        try:
            while text := client.recv(65536):
                client.sendall(text)
        except OSError:
            return
