"""What a machine may say to its proxy, read as hostile: one request, whole and unambiguous, or a refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from app.domain.egress import host_and_port
from app.errors import BadRequest

HEAD_LIMIT = 16 * 1024
_READ_BYTES = 65536
_LINE_LIMIT = 1024
_REQUEST_LINE = re.compile(r"([A-Z]{1,20}) ([!-~\x80-\xff]{1,8000}) HTTP/1\.[01]")
# No control character in a value: some servers take a bare carriage return for the end of a line.
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")
_URL = re.compile(
    r"(?i:http)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?(#.*)?"
)
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[^\r\n]*)?\r\n")
# They speak of one connection only, and this one is not the target's.
_HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "upgrade",
}
_REASONS = {400: "Bad Request", 403: "Forbidden", 431: "Request Header Fields Too Large", 501: "Not Implemented",
            502: "Bad Gateway", 504: "Gateway Timeout"}  # fmt: skip


class RequestRefusedError(Exception):
    """The answer that a machine gets instead of its target's. `what` is empty where there is nothing to keep."""

    def __init__(self, status: int, message: str, target: str = "", what: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.target = target
        self.what = what


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """Where to (`host:port`), and every byte that may go there, read from the machine as it is asked for."""

    target: str
    method: str
    client_bytes: Iterator[bytes] = field(repr=False)

    @property
    def is_tunnel(self) -> bool:
        """Whether what goes through is none of ours to read."""
        return self.method == "CONNECT"


def reply(status: int, message: str) -> bytes:
    """A short answer in plain text; the connection ends with it."""
    body = message.encode() + b"\n"
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


class HeadReader:
    """Reads one request from `recv`. Raises RequestRefusedError; EOFError if the machine hangs up before its end."""

    def __init__(self, recv: Callable[[int], bytes]) -> None:
        self._recv = recv
        self._buffer = b""

    def read(self) -> ProxyRequest:
        """CONNECT, or one request in absolute form (`GET http://host/path`)."""
        first, *rest = self._head().split("\r\n")
        line = _REQUEST_LINE.fullmatch(first)
        if line is None:
            raise RequestRefusedError(400, "this is no HTTP/1 request")
        method, where = line.groups()
        headers = _headers(rest)
        if method == "CONNECT":
            return ProxyRequest(_target(where), method, self._all())
        target, path, authority = _absolute(where)
        head = _rewritten(f"{method} {path} HTTP/1.1", authority, headers)
        return ProxyRequest(target, method, self._one_request(head, headers))

    def _head(self) -> str:
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > HEAD_LIMIT:
                raise RequestRefusedError(431, f"a request's head has at most {HEAD_LIMIT} bytes")
            self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        if len(head) > HEAD_LIMIT:
            raise RequestRefusedError(431, f"a request's head has at most {HEAD_LIMIT} bytes")
        return head.decode("latin-1")

    def _all(self) -> Iterator[bytes]:
        if self._buffer:
            yield self._buffer
        while data := self._recv(_READ_BYTES):
            yield data

    def _one_request(self, head: bytes, headers: list[tuple[str, str]]) -> Iterator[bytes]:
        """The rewritten head, and the body that it announces: nothing after it, which could be a request of its own."""
        lengths = {value for name, value in headers if name == "content-length"}
        codings = [value.lower() for name, value in headers if name == "transfer-encoding"]
        if len(lengths) + bool(codings) > 1 or codings not in ([], ["chunked"]):
            raise RequestRefusedError(400, "the request's length is ambiguous")
        if not all(_LENGTH.fullmatch(length) for length in lengths):
            raise RequestRefusedError(400, "the request's length is no number")
        body = self._chunked() if codings else self._exactly(int(next(iter(lengths), "0")))
        return _chain(head, body)

    def _exactly(self, count: int) -> Iterator[bytes]:
        while count:
            if not self._buffer:
                self._more()
            data, self._buffer = self._buffer[:count], self._buffer[count:]
            count -= len(data)
            yield data

    def _chunked(self) -> Iterator[bytes]:
        """Chunks as they come, their extensions left out, trailers dropped."""
        while size := self._chunk_size():
            yield b"%x\r\n" % size
            yield from self._exactly(size)
            if b"".join(self._exactly(2)) != b"\r\n":
                raise RequestRefusedError(400, "a chunk does not end where it says")
            yield b"\r\n"
        while self._line() != b"\r\n":
            pass
        yield b"0\r\n\r\n"

    def _chunk_size(self) -> int:
        match = _CHUNK.fullmatch(self._line())
        if match is None:
            raise RequestRefusedError(400, "a chunk has no size")
        return int(match.group(1), 16)

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > _LINE_LIMIT:
                raise RequestRefusedError(400, "a line between chunks is too long")
            self._more()
        line, newline, self._buffer = self._buffer.partition(b"\n")
        return line + newline

    def _more(self) -> None:
        data = self._recv(_READ_BYTES)
        if not data:
            raise EOFError
        self._buffer += data


def _chain(head: bytes, body: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from body


def _headers(lines: list[str]) -> list[tuple[str, str]]:
    headers = []
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise RequestRefusedError(400, "a header line is not sound")
        headers.append((header.group(1).lower(), header.group(2)))
    return headers


def _rewritten(first: str, authority: str, headers: list[tuple[str, str]]) -> bytes:
    """For the target: its own name as the host, and one request a connection."""
    dropped = _HOP_BY_HOP | {"host"}
    kept = [f"{name}: {value}" for name, value in headers if name not in dropped]
    lines = (first, f"Host: {authority}", *kept, "Connection: close", "", "")
    return "\r\n".join(lines).encode("latin-1")


def _absolute(where: str) -> tuple[str, str, str]:
    """An absolute URL as (`host:port`, path with query, the target's own name for its Host)."""
    scheme, separator, _ = where.partition("://")
    if not separator:
        raise RequestRefusedError(400, "this is a proxy: ask for http://host/path, or CONNECT")
    if scheme.lower() != "http":
        raise RequestRefusedError(
            501, "only http:// is fetched here; use CONNECT for anything else"
        )
    parts = _URL.fullmatch(where)
    if parts is None:
        raise RequestRefusedError(400, "the URL is not sound")
    host, port, path, query = parts.group("host", "port", "path", "query")
    # The target's name is made of what was read, and of nothing else that stood around it.
    authority = host.lower() + (f":{port}" if port else "")
    return _target(f"{host.lower()}:{port or 80}"), (path or "/") + (query or ""), authority


def _target(text: str) -> str:
    try:
        host_and_port(text)
    except BadRequest as error:
        raise RequestRefusedError(400, error.message) from error
    return text
