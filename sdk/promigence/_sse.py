"""Server-sent events taken apart, as their standard says: chunks of bytes in, frames out. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

# An event of this contract has some KiB; a stream without an end of a line is none.
FRAME_LIMIT_BYTES = 1024 * 1024


class TooLongError(Exception):
    """A frame that is larger than any of this contract."""


@dataclass(slots=True)
class Frames:
    """The frames of one stream. What it broke off in the middle of is never given."""

    _rest: bytearray = field(default_factory=bytearray)
    _data: list[str] = field(default_factory=list)
    _size: int = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The `data` of each frame that is whole now. Raises TooLongError."""
        self._rest += chunk
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            yield from self._take(line.removesuffix(b"\r").decode("utf-8", "replace"))
        if len(self._rest) + self._size > FRAME_LIMIT_BYTES:
            raise TooLongError

    def _take(self, line: str) -> Iterator[str]:
        if not line:
            if self._data:
                yield "\n".join(self._data)
            self._data, self._size = [], 0
            return
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
            self._size += len(line)
