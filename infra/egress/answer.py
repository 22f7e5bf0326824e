"""How much of a target's answer came: one that crashes in the middle closes its connection as one that is done does."""

from __future__ import annotations

import re

_HEAD_LIMIT = 64 * 1024
_HTTP = b"HTTP/"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r\n]*chunked[ \t]*\r\n", re.IGNORECASE)
_BLANK = b"\r\n\r\n"
_NO_BODY = frozenset({204, 304})


class Answer:
    """What a target has said to one request. Of a tunnel only its bytes are counted: what is in them is not ours, and a
    machine could make a target close one at its will.
    """

    def __init__(self, method: str) -> None:
        self._method = method
        self._size = 0
        self._head: bytes | None = b""
        self._left: int | None = None
        self._is_http = self._is_chunked = False
        self._end = b""

    @property
    def is_whole(self) -> bool:
        """Whether the target, when it closes now, has said all that it announced. No answer at all is not whole."""
        if self._method == "CONNECT":
            return True
        if self._head is not None:
            return self._size > 0 and not self._is_http
        if self._is_chunked:
            return self._end == _BLANK
        return not self._left

    @property
    def seen(self) -> str:
        """In words, for the record."""
        if self._size == 0:
            return "it closed without an answer"
        missing = f", {self._left} more were announced" if self._left else ""
        return f"after {self._size} bytes of its answer{missing}"

    def take(self, data: bytes) -> None:
        """More of it came."""
        self._size += len(data)
        if self._method == "CONNECT":
            return
        if self._head is not None:
            data = self._take_head(self._head + data)
        if self._head is None and data:
            self._take_body(data)

    def _take_head(self, so_far: bytes) -> bytes:
        """Read the head when it is whole; returns what of the body is there. Interim answers (1xx) come before it."""
        while _BLANK in so_far:
            head, _, rest = so_far.partition(_BLANK)
            status = _STATUS.match(head)
            if status is None or status[1][:1] != b"1":
                self._read_head(head + b"\r\n", int(status[1]) if status else 0)
                return rest
            so_far, self._is_http = rest, True
        self._is_http = self._is_http or so_far.startswith(_HTTP)
        # No HTTP that we could read: only its bytes are counted then.
        self._head = so_far if len(so_far) <= _HEAD_LIMIT else None
        return b""

    def _read_head(self, head: bytes, status: int) -> None:
        self._head = None
        if self._method == "HEAD" or status in _NO_BODY:
            return
        length = _LENGTH.search(head)
        self._is_chunked = _CHUNKED.search(head) is not None
        self._left = int(length[1]) if length and not self._is_chunked else None

    def _take_body(self, data: bytes) -> None:
        self._end = (self._end + data)[-len(_BLANK) :]
        if self._left is not None:
            self._left = max(0, self._left - len(data))
