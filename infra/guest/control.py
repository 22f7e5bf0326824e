"""The control ports of all machines of a host: one thread reads, callers wait for the answer they asked for."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from infra.guest import wire
from infra.guest.faults import hung, lost

Answer = TypeVar("Answer")

# QEMU takes a line as fast as its guest reads; a guest that stops reading fills its socket.
_SEND_TIMEOUT_S = 5.0
_READ_BYTES = 65536


class ControlPort:
    """One machine's control port. `heard` gets every sound line, on the reading thread."""

    def __init__(self, name: str, sock: socket.socket, heard: Callable[[wire.Line], None]) -> None:
        self.name = name
        self._sock = sock
        self._heard = heard
        self._buffer = bytearray()
        self._skipping = False
        self._waiting: list[_Waiter[object]] = []
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._lost = False

    @property
    def is_lost(self) -> bool:
        """Whether the machine has hung up."""
        return self._lost

    def say(self, line: bytes) -> None:
        """Send a line. Raises EnvironmentFault(guest_lost, guest_hung)."""
        with self._sending:
            if self._lost:
                raise lost(self.name, "its control port is closed")
            try:
                self._send(line)
            except TimeoutError as error:
                raise hung(self.name, "it does not read its control port") from error
            except (OSError, ValueError) as error:  # ValueError: closed while we waited
                raise lost(self.name, "its control port is closed") from error

    def ask(
        self, line: bytes, match: Callable[[wire.Line], Answer | None], timeout_s: float
    ) -> Answer:
        """Send a line; the first answer that `match` accepts. Raises EnvironmentFault(guest_lost, guest_hung)."""
        waiter = _Waiter(match)
        with self._lock:
            self._waiting.append(waiter)  # type: ignore[arg-type]
        try:
            self.say(line)
            answer = waiter.wait(timeout_s)
        finally:
            with self._lock:
                self._waiting.remove(waiter)  # type: ignore[arg-type]
        if answer is not None:
            return answer
        if self._lost:
            raise lost(self.name, "its control port closed before it answered")
        verb = line.split(b" ", 1)[0].strip().decode()
        raise hung(self.name, f"it did not answer {verb} within {timeout_s:.1f} s")

    def take(self, data: bytes) -> None:
        """Bytes from the machine. A line over the limit is dropped, its rest too."""
        self._buffer += data
        *whole, rest = self._buffer.split(b"\n")
        self._buffer = rest
        for raw in whole:
            skipped, self._skipping = self._skipping, False
            line = None if skipped else wire.parse(bytes(raw))
            if line is not None:
                self._deliver(line)
        if len(rest) > wire.LINE_LIMIT:
            self._skipping = True
            self._buffer = bytearray()

    def hang_up(self) -> None:
        """Nothing more comes: whoever waits is told."""
        with self._lock:
            self._lost = True
            for waiter in self._waiting:
                waiter.give_up()
        self._sock.close()

    def fileno(self) -> int:
        """For a selector; -1 once closed."""
        return self._sock.fileno()

    def read(self) -> bytes:
        """What has come; nothing at the end. Raises BlockingIOError, OSError."""
        return self._sock.recv(_READ_BYTES)

    def _send(self, line: bytes) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._sock, selectors.EVENT_WRITE)
            while line:
                if not ready.select(_SEND_TIMEOUT_S):
                    raise TimeoutError
                line = line[self._sock.send(line) :]

    def _deliver(self, line: wire.Line) -> None:
        self._heard(line)
        with self._lock:
            for waiter in self._waiting:
                waiter.offer(line)


class ControlLoop:
    """Reads all control ports in one thread, which lives from the first port to `close`."""

    def __init__(self, lost: Callable[[str], None]) -> None:
        self._on_lost = lost
        self._selector = selectors.DefaultSelector()
        self._wake_out, self._wake_in = socket.socketpair()
        self._changes: list[tuple[bool, ControlPort]] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = False

    def attach(
        self, name: str, sock: socket.socket, heard: Callable[[wire.Line], None]
    ) -> ControlPort:
        """Own a connected socket from here on."""
        sock.setblocking(False)
        port = ControlPort(name, sock, heard)
        self._change(True, port)
        return port

    def detach(self, port: ControlPort) -> None:
        """Hang up on a machine. Its loss is no news then."""
        self._change(False, port)

    def close(self) -> None:
        """End the thread and hang up on all machines. Twice is safe."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            thread = self._thread
        self._wake_in.send(b"x")
        if thread is not None:
            thread.join()
        for port in self._ports():
            self._forget(port)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    def _change(self, add: bool, port: ControlPort) -> None:
        with self._lock:
            if self._closing:
                port.hang_up()
                return
            self._changes.append((add, port))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="control-ports", daemon=True)
                self._selector.register(self._wake_out, selectors.EVENT_READ)
                self._thread.start()
        self._wake_in.send(b"x")

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                if isinstance(key.fileobj, ControlPort):
                    self._serve(key.fileobj)
                else:
                    self._wake_out.recv(4096)
                    self._apply_changes()

    def _apply_changes(self) -> None:
        with self._lock:
            changes, self._changes = self._changes, []
        for add, port in changes:
            if add:
                self._selector.register(port, selectors.EVENT_READ)
            else:
                self._forget(port)

    def _serve(self, port: ControlPort) -> None:
        try:
            data = port.read()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            port.take(data)
            return
        self._forget(port)
        self._on_lost(port.name)

    def _forget(self, port: ControlPort) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(port)
        port.hang_up()

    def _ports(self) -> list[ControlPort]:
        keys = self._selector.get_map().values()
        return [key.fileobj for key in keys if isinstance(key.fileobj, ControlPort)]


class _Waiter(Generic[Answer]):
    def __init__(self, match: Callable[[wire.Line], Answer | None]) -> None:
        self._match = match
        self._done = threading.Event()
        self._answer: Answer | None = None

    def offer(self, line: wire.Line) -> None:
        if self._answer is None:
            self._answer = self._match(line)
            if self._answer is not None:
                self._done.set()

    def give_up(self) -> None:
        self._done.set()

    def wait(self, timeout_s: float) -> Answer | None:
        self._done.wait(timeout_s)
        return self._answer
