"""TLS in front of a PostgreSQL that was built without: the protocol's own way in, then a real handshake.

A client asks first (SSLRequest), is told `S`, and both go on inside of TLS; what it says there is handed to the
server's socket as it is.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SSL_REQUEST = struct.pack("!ii", 8, 80877103)
WAIT_S = 10.0


@contextmanager
def tls_front(server: Path, certificate: Path, key: Path) -> Iterator[int]:
    """The port on 127.0.0.1 that leads to the server's socket."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listening = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def accept() -> None:
        with suppress(OSError):  # it is closed: no client comes any more
            while True:
                client, _ = listening.accept()
                serving = threading.Thread(target=_serve, args=(client, context, server))
                serving.start()
                threads.append(serving)

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for each in (accepting, *threads):
            each.join(timeout=WAIT_S)


def _serve(client: socket.socket, context: ssl.SSLContext, server: Path) -> None:
    client.settimeout(WAIT_S)
    # A client that does not trust the certificate hangs up in the handshake; one that asks for no TLS is shown out.
    with suppress(OSError), client:
        if client.recv(8) != SSL_REQUEST:
            return
        client.sendall(b"S")
        with (
            context.wrap_socket(client, server_side=True) as inside,
            socket.socket(socket.AF_UNIX) as behind,
        ):
            behind.connect(str(server))
            _carry(inside, behind)


def _carry(inside: ssl.SSLSocket, behind: socket.socket) -> None:
    with selectors.DefaultSelector() as ready:
        ready.register(inside, selectors.EVENT_READ, behind)
        ready.register(behind, selectors.EVENT_READ, inside)
        while True:
            for key, _ in ready.select(WAIT_S):
                source = inside if key.fileobj is inside else behind
                said = source.recv(1 << 16)
                if source is inside:
                    while inside.pending():  # what is decrypted already wakes no selector
                        said += inside.recv(inside.pending())
                if not said:
                    return
                key.data.sendall(said)
