"""What of a file this host holds in its page cache, and how to empty it of that file."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator

PAGE_BYTES = mmap.PAGESIZE
# Asked about at once: one byte of answer a page, and no mapping that a host without overcommit would refuse.
_WINDOW_BYTES = 256 << 20
# Of each byte that mincore answers with, only the lowest bit says anything.
_LOWEST_BIT = bytes(value & 1 for value in range(256))


def forget(fd: int) -> None:
    """Write out and drop what the cache has of this file; what somebody has mapped stays. Raises OSError."""
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def resident(fd: int) -> Iterator[tuple[int, int]]:
    """The runs of pages in the cache, as (offset, length) in bytes, in order; the last may reach beyond the file's end.

    Linux says that all is there to who neither owns the file nor may write it. Raises OSError.
    """
    size = os.fstat(fd).st_size
    for start in range(0, size, _WINDOW_BYTES):
        pages = _pages(fd, start, min(_WINDOW_BYTES, size - start))
        for first, last in _runs(pages):
            yield start + first * PAGE_BYTES, (last - first) * PAGE_BYTES


def _pages(fd: int, start: int, length: int) -> bytes:
    """One byte a page: 1 for what is in the cache."""
    answer = ctypes.create_string_buffer(-(-length // PAGE_BYTES))
    # A private copy, because ctypes takes the address only of what may be written; nothing is read or written.
    with mmap.mmap(fd, length, access=mmap.ACCESS_COPY, offset=start) as mapped:
        address = ctypes.addressof(first := ctypes.c_char.from_buffer(mapped))
        failed = _LIBC.mincore(address, length, answer)
        errno = ctypes.get_errno()
        del first  # it holds the mapping open
    if failed:
        raise OSError(errno, os.strerror(errno))
    return answer.raw.translate(_LOWEST_BIT)


def _runs(pages: bytes) -> Iterator[tuple[int, int]]:
    end = 0
    while (first := pages.find(1, end)) >= 0:
        end = pages.find(0, first)
        if end < 0:
            end = len(pages)
        yield first, end


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
