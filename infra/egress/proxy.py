"""The only way out of a machine: an HTTP proxy on the host that lets through what was allowed, and nothing else.

A target must be one of the machine's own; whether the operator lists it and where it leads, and the connecting, is the
dialler's (`reach.py`). Refusals (`what` is `refused`) and faults of allowed targets are kept for each machine.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from app.domain.egress import REFUSED, host_and_port
from app.errors import BadRequest
from infra.egress.answer import Answer
from infra.egress.http import HeadReader, ProxyRequest, RequestRefusedError, reply
from infra.egress.reach import fault, refused

_KEPT = 64
# A machine that dials into the void keeps nobody else waiting.
_DIALS_AT_ONCE = 16
_HEAD_TIMEOUT_S = 30.0
# A model may think for long before its first byte.
_IDLE_S = 3600.0
# What a client may still say after its target has closed.
_LINGER_S = 30.0
_READ_BYTES = 65536


def _boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


# From `host:port` to a connection, or RequestRefusedError.
Dial = Callable[[str], socket.socket]
Lines = deque[dict[str, str]]


def _lines() -> Lines:
    return deque(maxlen=_KEPT)


@dataclass(slots=True)
class _Kept:
    """Of one machine. Faults and refusals are apart: a program that asks again and again for what it may not have must
    not push out what failed, by which its command is judged.
    """

    faults: Lines = field(default_factory=_lines)
    refusals: Lines = field(default_factory=_lines)
    open: set[socket.socket] = field(default_factory=set)
    dialling: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(_DIALS_AT_ONCE)
    )


class Stream(Protocol):
    """A machine's connection to its proxy; an SSH channel is one."""

    def recv(self, size: int) -> bytes: ...
    def sendall(self, data: bytes) -> object: ...
    def settimeout(self, timeout: float | None) -> object: ...
    def shutdown_write(self) -> object: ...
    def close(self) -> object: ...


class EgressProxy:
    """`dial` connects to what is allowed at all: a `Dialler`'s, in a process of its own, or a `Reach`'s in this one."""

    def __init__(self, dial: Dial, boot_ns: Callable[[], int] = _boot_ns) -> None:
        self._dial = dial
        self._boot_ns = boot_ns
        self._machines: dict[str, _Kept] = {}
        self._lock = threading.Lock()

    def serve(self, name: str, stream: Stream, targets: tuple[str, ...]) -> None:
        """Serve one connection of the machine `name` to its end; `targets` are those that it was allowed."""
        asked_ns = self._boot_ns()
        heard = _Heard(stream, asked_ns + int(_HEAD_TIMEOUT_S * 1e9), self._boot_ns)
        reader, kept = HeadReader(heard.recv), self._kept_of(name)
        with closing(stream), suppress(OSError, EOFError):
            try:
                request = reader.read()
                heard.is_head = False
                asked_ns = self._boot_ns()
                _need_allowed(request.target, targets)
                with kept.dialling:
                    upstream = self._dial(request.target)
            except RequestRefusedError as told:
                if told.what:
                    self._note(kept, told, asked_ns)
                stream.sendall(reply(told.status, told.message))
                return
            with closing(upstream), self._opened(kept, upstream):
                self._relay(kept, stream, upstream, request)

    def was_away(self, name: str, targets: tuple[str, ...]) -> None:
        """Keep that a machine had no proxy for a while: what it could not reach meanwhile is no fault of its own."""
        for target in targets:
            away = fault(target, 502, "proxy_away", "its proxy was away for a while")
            self._note(self._kept_of(name), away, 0)  # for how long is not known

    def log(self, name: str) -> tuple[dict[str, str], ...]:
        """The last 64 refusals and the last 64 faults of a machine, oldest first: `target`, `what`, `why`, `at` (UTC),
        and `since_boot_ns` to `at_boot_ns` on the host's boot-time clock, by which it is judged whether a command ran
        then.
        """
        with self._lock:
            kept = self._machines.get(name, _Kept())
            lines = (*kept.refusals, *kept.faults)
        return tuple(sorted(lines, key=lambda line: int(line["at_boot_ns"])))

    def forget(self, name: str) -> None:
        """Hang up for a machine that is gone and drop its lines. Twice is safe."""
        with self._lock:
            for upstream in self._machines.pop(name, _Kept()).open:
                with suppress(OSError):
                    upstream.shutdown(socket.SHUT_RDWR)

    def _kept_of(self, name: str) -> _Kept:
        """Looked up once for each connection: what one still notes when its machine is forgotten goes with it."""
        with self._lock:
            return self._machines.setdefault(name, _Kept())

    @contextmanager
    def _opened(self, kept: _Kept, upstream: socket.socket) -> Iterator[None]:
        with self._lock:
            kept.open.add(upstream)
        try:
            yield
        finally:
            with self._lock:
                kept.open.discard(upstream)

    def _relay(
        self, kept: _Kept, stream: Stream, upstream: socket.socket, request: ProxyRequest
    ) -> None:
        """Both directions at once, until the target has said all, and for a tunnel the machine too."""
        heard, over = Answer(request.method), threading.Event()

        def answer() -> None:
            try:
                if _copy_answer(upstream, stream, heard) and not (heard.is_whole or over.is_set()):
                    self._note(kept, fault(request.target, 502, "gone", heard.seen))
            except TimeoutError:
                seen = f"it fell silent; {heard.seen}"
                silent_ns = self._boot_ns() - int(_IDLE_S * 1e9)
                self._note(kept, fault(request.target, 504, "timed_out", seen), silent_ns)
            except OSError as error:
                what = "reset" if isinstance(error, ConnectionError) else "unreachable"
                seen = f"{error.strerror or error}; {heard.seen}"
                self._note(kept, fault(request.target, 502, what, seen))
            finally:
                stream.settimeout(_LINGER_S)
                with suppress(OSError, EOFError):
                    stream.shutdown_write()

        stream.settimeout(_IDLE_S)
        upstream.settimeout(_IDLE_S)
        answering = threading.Thread(target=answer, name="egress-answer", daemon=True)
        answering.start()
        _ask(stream, upstream, request, over)
        answering.join()

    def _note(
        self, kept: _Kept, told: RequestRefusedError, since_boot_ns: int | None = None
    ) -> None:
        now_ns = self._boot_ns()
        line = {
            "target": told.target[:300],
            "what": told.what,
            "why": told.message[:500],
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "since_boot_ns": str(now_ns if since_boot_ns is None else since_boot_ns),
            "at_boot_ns": str(now_ns),
        }
        with self._lock:
            (kept.refusals if told.what == REFUSED else kept.faults).append(line)


@dataclass(slots=True)
class _Heard:
    """What a machine says: its head before a moment, however it drips; all else in its own time."""

    stream: Stream
    until_ns: int
    boot_ns: Callable[[], int]
    is_head: bool = True

    def recv(self, size: int) -> bytes:
        """Raises TimeoutError for a head that is late."""
        if self.is_head:
            left_s = (self.until_ns - self.boot_ns()) / 1e9
            if left_s <= 0:
                raise TimeoutError
            self.stream.settimeout(left_s)
        return self.stream.recv(size)


def _need_allowed(target: str, targets: tuple[str, ...]) -> None:
    try:
        allowed = {host_and_port(each) for each in targets}
        is_allowed = host_and_port(target) in allowed
    except BadRequest as error:
        raise RequestRefusedError(400, error.message) from error
    if not is_allowed:
        raise refused(target, "it is not among the targets that this run allows")


def _ask(
    stream: Stream, upstream: socket.socket, request: ProxyRequest, over: threading.Event
) -> None:
    """Pass on what the machine says. `over` is set where its target owes it nothing more: the machine went away or
    broke off. A target that does not take it is told by what it answers.
    """
    try:
        if request.is_tunnel:
            stream.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for data in request.client_bytes:
            if not _taken(upstream, data):
                return
    except (OSError, EOFError, RequestRefusedError):
        over.set()
        _hang_up(upstream, socket.SHUT_RDWR)
        return
    if request.is_tunnel:
        _hang_up(upstream, socket.SHUT_WR)


def _taken(upstream: socket.socket, data: bytes) -> bool:
    try:
        upstream.sendall(data)
    except OSError:
        _hang_up(upstream, socket.SHUT_WR)
        return False
    return True


def _hang_up(upstream: socket.socket, how: int) -> None:
    with suppress(OSError):
        upstream.shutdown(how)


def _copy_answer(upstream: socket.socket, stream: Stream, heard: Answer) -> bool:
    """Whether the target ended it: a machine that no longer listens is no fault of its target."""
    for data in _chunks(upstream):
        heard.take(data)
        try:
            stream.sendall(data)
        except (OSError, EOFError):
            return False
    return True


def _chunks(upstream: socket.socket) -> Iterator[bytes]:
    while data := upstream.recv(_READ_BYTES):
        yield data
