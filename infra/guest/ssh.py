"""The SSH channel of a machine: one transport, kept open, over the machine's own socket.

The client does not authenticate: the socket is the host's and leads to this one machine, so there is nobody else to
tell apart. The server does: its key was made by this host for this machine, and no other is accepted.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import paramiko

from app.errors import EnvironmentFault, FailureKind
from infra.guest.faults import hung, lost

PROXY_PORT = 3128
_PROXY_HOST = "127.0.0.1"
# Of those that both sides know, the cheapest under emulation: the key exchange is most of the time to connect.
_KEX = ("curve25519-sha256@libssh.org",)
_CIPHERS = ("aes128-ctr",)
_DIGESTS = ("hmac-sha2-256",)
_KEYS = ("ssh-ed25519",)
# What a guest may open at once; it opens channels only for its own connections to the proxy.
_CHANNELS = 64
_READ_BYTES = 65536
_STDERR_LIMIT = 4096
_REPLY_LIMIT = 1024
_BEGIN_TRIES = 3

# The library logs every death of a machine as an error with its trace; here each is raised, and named, instead.
_LOGGER = "infra.guest.paramiko"
logging.getLogger(_LOGGER).setLevel(logging.CRITICAL)

ForwardHandler = Callable[[paramiko.Channel], None]


@dataclass(frozen=True, slots=True)
class Finished:
    """How a verb of the guest's shell ended, and the first 4 KiB of what it said of it."""

    exit_code: int
    message: str


class SshChannel:
    """An open, pinned transport. All calls raise EnvironmentFault(guest_lost, guest_hung)."""

    def __init__(self, name: str, transport: paramiko.Transport) -> None:
        self._name = name
        self._transport = transport
        self._starter: paramiko.Channel | None = None
        self._starting = threading.Lock()
        self._forwarding = False
        self._asking = threading.Lock()
        self._forwarded = threading.BoundedSemaphore(_CHANNELS)

    @classmethod
    def connect(
        cls, name: str, sock: socket.socket, host_key: bytes, timeout_s: float
    ) -> SshChannel:
        """Open the transport over a connected socket, which it then owns, and check the machine's key."""
        transport = _transport(name, sock)
        transport.banner_timeout = timeout_s
        try:
            with _within(name, transport, timeout_s):
                transport.start_client(timeout=timeout_s)
                if transport.get_remote_server_key().asbytes() != _public_blob(host_key):
                    raise lost(name, "another SSH server than its own answers")
                transport.auth_none("root")
        except BaseException:
            _hang_up(transport)
            raise
        return cls(name, transport)

    @property
    def is_open(self) -> bool:
        """Whether the transport lives, as far as this side knows."""
        return self._transport.is_active()

    def start(self, request: bytes, timeout_s: float) -> str:
        """Hand a start request to PID 1 and return its one-line answer. One short-lived program serves all starts."""
        with self._starting, _within(self._name, self._transport, timeout_s):
            if self._starter is None or self._starter.closed:
                self._starter = self._session(":start", timeout_s)
            self._starter.settimeout(timeout_s)
            try:
                self._starter.sendall(struct.pack(">I", len(request)) + request)
                return _read_line(self._starter)
            except BaseException:
                self._starter.close()
                raise

    def run(
        self,
        command: str,
        *,
        sink: Callable[[bytes], object],
        feed: Iterable[bytes] = (),
        silence_s: float,
        within_s: float,
    ) -> Finished:
        """Run a verb of the guest's shell: `feed` is its input, `sink` gets its output and may refuse it by raising.

        `silence_s` bounds each wait, `within_s` the whole, against a guest that drips.
        """
        try:
            with _within(self._name, self._transport, within_s):
                channel = self._session(command, silence_s)
                with contextlib.closing(channel):
                    _feed(channel, feed)
                    _drain(channel, sink)
                    message = _read_stderr(channel)
                    return Finished(_exit_code(self._name, channel, silence_s), message)
        except _OurSideError as failed:
            raise failed.error from failed

    def forward(self, handler: ForwardHandler, timeout_s: float) -> None:
        """Have the guest listen on the proxy's port; `handler` gets each connection, in a thread of its own. Twice is
        safe: the first handler stays.
        """

        def accepted(channel: paramiko.Channel, _origin: object, _server: object) -> None:
            if not self._forwarded.acquire(blocking=False):
                channel.close()
                return
            thread = threading.Thread(target=serve, args=(channel,), name="egress", daemon=True)
            thread.start()

        def serve(channel: paramiko.Channel) -> None:
            try:
                handler(channel)
            finally:
                channel.close()
                self._forwarded.release()

        try:
            with self._asking, _within(self._name, self._transport, timeout_s):
                if not self._forwarding:
                    self._transport.request_port_forward(_PROXY_HOST, PROXY_PORT, accepted)
                self._forwarding = True
        except EnvironmentFault as fault:
            if not self.is_open:
                raise
            raise EnvironmentFault(
                FailureKind.EGRESS_LOST,
                f"machine {self._name}: port {PROXY_PORT} in it cannot be had for the proxy",
            ) from fault

    def close(self) -> None:
        """End the transport and all that runs over it, at once. Twice is safe."""
        _hang_up(self._transport)

    def _session(self, command: str, timeout_s: float) -> paramiko.Channel:
        """A program of the guest's, begun. One that its server refused to begin, as it may when it cannot fork, has not
        run: the server says that it begins before anything else, and over the same transport it is asked once more.
        """
        for _ in range(_BEGIN_TRIES - 1):
            with contextlib.suppress(_RefusedError):
                return self._begun(command, timeout_s)
        return self._begun(command, timeout_s)

    def _begun(self, command: str, timeout_s: float) -> paramiko.Channel:
        channel = self._transport.open_session(timeout=timeout_s)
        channel.settimeout(timeout_s)
        try:
            channel.exec_command(command)
        except paramiko.SSHException as error:
            channel.close()
            if not self._transport.is_active():
                raise
            raise _RefusedError(f"a program was refused: {error}") from error
        return channel


def _transport(name: str, sock: socket.socket) -> paramiko.Transport:
    try:
        transport = paramiko.Transport(sock)
    except paramiko.SSHException as error:
        sock.close()
        raise lost(name, f"no SSH over its socket: {error}") from error
    transport.set_log_channel(_LOGGER)
    options = transport.get_security_options()
    options.kex, options.ciphers, options.digests, options.key_types = (
        _KEX,
        _CIPHERS,
        _DIGESTS,
        _KEYS,
    )
    return transport


def _hang_up(transport: paramiko.Transport) -> None:
    """The library's own close leaves the socket to its reading thread, for up to 0.1 s: time enough for the machine to
    take what belongs to the next connection for this one's.
    """
    with contextlib.suppress(OSError):
        transport.sock.shutdown(socket.SHUT_RDWR)
    transport.close()


def _public_blob(host_key: bytes) -> bytes:
    """An ed25519 public key as SSH spells it."""
    kind = b"ssh-ed25519"
    return struct.pack(">I", len(kind)) + kind + struct.pack(">I", len(host_key)) + host_key


@contextlib.contextmanager
def _within(name: str, transport: paramiko.Transport, timeout_s: float) -> Iterator[None]:
    """A bound on calls of the library that have none: the transport is closed when the time is over."""
    ends = time.monotonic() + timeout_s
    timer = threading.Timer(timeout_s, _hang_up, (transport,))
    timer.daemon = True
    timer.start()
    try:
        with _translated(name, transport):
            yield
    except EnvironmentFault as fault:
        if fault.kind is FailureKind.GUEST_LOST and time.monotonic() >= ends:
            raise hung(name, f"its SSH channel was silent for {timeout_s:.1f} s") from fault
        raise
    finally:
        timer.cancel()


@contextlib.contextmanager
def _translated(name: str, transport: paramiko.Transport) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise hung(name, "its SSH channel is silent") from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        state = "is up" if transport.is_active() else "is gone"
        raise lost(
            name, f"its SSH channel broke ({str(error) or 'closed'}); the transport {state}"
        ) from error


class _RefusedError(paramiko.SSHException):
    """The transport is up, and the guest's server would not begin a program."""


class _OurSideError(Exception):
    """Source or sink of a transfer failed: nothing that the machine is to blame for."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


@contextlib.contextmanager
def _our_side() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _OurSideError(error) from error


def _feed(channel: paramiko.Channel, feed: Iterable[bytes]) -> None:
    """Send all of it; a program that stops reading has its reasons, and its exit code tells them."""
    pieces = iter(feed)
    try:
        while True:
            with _our_side():
                data = next(pieces, b"")
            if not data:
                break
            channel.sendall(data)
        channel.shutdown_write()
    except TimeoutError:
        raise
    except OSError:
        if not channel.closed and not channel.exit_status_ready():
            raise


def _drain(channel: paramiko.Channel, sink: Callable[[bytes], object]) -> None:
    while data := channel.recv(_READ_BYTES):
        with _our_side():
            sink(data)


def _read_line(channel: paramiko.Channel) -> str:
    line = b""
    while not line.endswith(b"\n"):
        data = channel.recv(_REPLY_LIMIT)
        if not data or len(line) > _REPLY_LIMIT:
            raise EOFError("it ended without an answer")
        line += data
    return line.decode("utf-8", "replace").strip()


def _read_stderr(channel: paramiko.Channel) -> str:
    message = b""
    while len(message) < _STDERR_LIMIT:
        data = channel.recv_stderr(_STDERR_LIMIT)
        if not data:
            break
        message += data
    return message.decode("utf-8", "replace").strip()


def _exit_code(name: str, channel: paramiko.Channel, timeout_s: float) -> int:
    """The library says -1 both for a killed program and for a lost transport, and waits for ever: ask it otherwise."""
    if not channel.status_event.wait(timeout_s):
        raise hung(name, "a program on its SSH channel does not end")
    if channel.exit_status < 0:
        raise lost(name, "a program on its SSH channel ended without a status")
    return channel.exit_status
