"""The only way out of a machine: an HTTP proxy on the host that lets through what was allowed, and nothing else.

A target must be one of the machine's own, on the operator's list, and lead where anybody may go. It is resolved once;
what was checked is what is connected to. Refusals (`what` is `refused`) and faults of allowed targets are kept for each
machine.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from app.domain.egress import REFUSED, check, host_and_port
from app.errors import BadRequest, Forbidden
from infra.egress.addresses import Address, is_own, refusal, resolve
from infra.egress.answer import Answer
from infra.egress.http import HeadReader, ProxyRequest, RequestRefusedError, reply

_KEPT = 64
_CONNECT_TIMEOUT_S = 15.0
_HEAD_TIMEOUT_S = 30.0
# A model may think for long before its first byte.
_IDLE_S = 3600.0
# What a client may still say after its target has closed.
_LINGER_S = 30.0
_READ_BYTES = 65536


def _boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


Resolver = Callable[[str, int], list[Address]]
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


class Stream(Protocol):
    """A machine's connection to its proxy; an SSH channel is one."""

    def recv(self, size: int) -> bytes: ...
    def sendall(self, data: bytes) -> object: ...
    def settimeout(self, timeout: float | None) -> object: ...
    def shutdown_write(self) -> object: ...
    def close(self) -> object: ...


class EgressProxy:
    """`operator_allows` are the operator's patterns (`app/domain/egress.py`), none by default; loopback, and the host's
    own addresses, only where a pattern names the very address (or `localhost`). `never` are `host:port` of the control
    plane, refused whatever the patterns say.
    """

    def __init__(
        self,
        operator_allows: Iterable[str] = (),
        never: Iterable[str] = (),
        resolver: Resolver = resolve,
        boot_ns: Callable[[], int] = _boot_ns,
    ) -> None:
        self._operator_allows = tuple(operator_allows)
        self._resolve = resolver
        self._boot_ns = boot_ns
        self._never = tuple(host_and_port(target) for target in never)
        self._machines: dict[str, _Kept] = {}
        self._lock = threading.Lock()

    def serve(self, name: str, stream: Stream, targets: tuple[str, ...]) -> None:
        """Serve one connection of the machine `name` to its end; `targets` are those that it was allowed."""
        stream.settimeout(_HEAD_TIMEOUT_S)
        reader, kept = HeadReader(stream.recv), self._kept_of(name)
        with closing(stream), suppress(OSError, EOFError):
            asked_ns = self._boot_ns()
            try:
                request = reader.read()
                asked_ns = self._boot_ns()
                upstream = self._connect(request.target, targets)
            except RequestRefusedError as refused:
                if refused.what:
                    self._note(kept, refused, asked_ns)
                stream.sendall(reply(refused.status, refused.message))
                return
            with closing(upstream), self._opened(kept, upstream):
                self._relay(kept, stream, upstream, request)

    def was_away(self, name: str, targets: tuple[str, ...]) -> None:
        """Keep that a machine had no proxy for a while: what it could not reach meanwhile is no fault of its own."""
        for target in targets:
            away = _fault(target, 502, "proxy_away", "its proxy was away for a while")
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

    def _connect(self, target: str, targets: tuple[str, ...]) -> socket.socket:
        """A connection to the target, or the refusal that the guest is told."""
        try:
            host, port = host_and_port(target)
            allowed = {host_and_port(each) for each in targets}
        except BadRequest as error:
            raise RequestRefusedError(400, error.message) from error
        if (host, port) not in allowed:
            raise _refused(target, "it is not among the targets that this run allows")
        try:
            check((target,), self._operator_allows)
        except Forbidden as error:
            raise _refused(target, "it is not on the operator's allow-list") from error
        return _first_connection(target, self._sound_addresses(target, host, port))

    def _sound_addresses(self, target: str, host: str, port: int) -> list[Address]:
        """Where the target leads; refused as a whole if any of it leads where nobody may go."""
        try:
            addresses = self._resolve(host, port)
        except OSError as error:
            raise _fault(
                target, 502, "unresolved", f"its name does not resolve: {error}"
            ) from error
        for address in addresses:
            if self._is_control_plane(address, port):
                raise _refused(target, "it is a part of the control plane")
            why = refusal(address)
            if why is None and is_own(address) and not self._lists(address, port):
                why = "an address of the host itself, and the operator does not list it"
            if why is not None:
                raise _refused(target, f"it leads to {address}: {why}")
        return addresses

    def _is_control_plane(self, address: Address, port: int) -> bool:
        """A part that listens on every address of the host is at each of them."""
        for host, its_port in self._never:
            if its_port != port:
                continue
            try:
                at = self._resolve(host, port)
            except OSError:
                continue
            if address in at or (is_own(address) and any(each.is_unspecified for each in at)):
                return True
        return False

    def _lists(self, address: Address, port: int) -> bool:
        """Whether the operator names this very address. No wildcard and no name that merely resolves to it opens it."""
        spellings = {str(address)}
        if address.is_loopback:
            spellings.add("localhost")
        for pattern in self._operator_allows:
            host, _, pattern_port = pattern.rpartition(":")
            if host.strip("[]").lower() in spellings and pattern_port in ("*", str(port)):
                return True
        return False

    def _relay(
        self, kept: _Kept, stream: Stream, upstream: socket.socket, request: ProxyRequest
    ) -> None:
        """Both directions at once, until the target has said all, and for a tunnel the machine too."""
        heard, over = Answer(request.method), threading.Event()

        def answer() -> None:
            try:
                if _copy_answer(upstream, stream, heard) and not (heard.is_whole or over.is_set()):
                    self._note(kept, _fault(request.target, 502, "gone", heard.seen))
            except TimeoutError:
                seen = f"it fell silent; {heard.seen}"
                silent_ns = self._boot_ns() - int(_IDLE_S * 1e9)
                self._note(kept, _fault(request.target, 504, "timed_out", seen), silent_ns)
            except OSError as error:
                what = "reset" if isinstance(error, ConnectionError) else "unreachable"
                seen = f"{error.strerror or error}; {heard.seen}"
                self._note(kept, _fault(request.target, 502, what, seen))
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
        self, kept: _Kept, refused: RequestRefusedError, since_boot_ns: int | None = None
    ) -> None:
        now_ns = self._boot_ns()
        line = {
            "target": refused.target[:300],
            "what": refused.what,
            "why": refused.message[:500],
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "since_boot_ns": str(now_ns if since_boot_ns is None else since_boot_ns),
            "at_boot_ns": str(now_ns),
        }
        with self._lock:
            (kept.refusals if refused.what == REFUSED else kept.faults).append(line)


def _first_connection(target: str, addresses: list[Address]) -> socket.socket:
    _, port = host_and_port(target)
    fault = _fault(target, 502, "unresolved", "it has no address")
    for address in addresses:
        try:
            return socket.create_connection((str(address), port), timeout=_CONNECT_TIMEOUT_S)
        except TimeoutError:
            fault = _fault(target, 504, "timed_out", f"{address} did not answer")
        except ConnectionRefusedError:
            fault = _fault(target, 502, "connection_refused", f"{address} refused the connection")
        except OSError as error:
            fault = _fault(target, 502, "unreachable", f"{address}: {error.strerror or error}")
    raise fault


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


def _refused(target: str, why: str) -> RequestRefusedError:
    return RequestRefusedError(403, f"{target} cannot be reached from here: {why}", target, REFUSED)


def _fault(target: str, status: int, what: str, why: str) -> RequestRefusedError:
    return RequestRefusedError(status, f"{target} failed: {why}", target, what)
