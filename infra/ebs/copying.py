"""A bundle's files copied to another filesystem with their holes kept, and on the disk when it returns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

BLOCK_BYTES = 4096
MIB, GIB = 1 << 20, 1 << 30
# What ext4 takes for itself besides: group descriptors, bitmaps, a few inodes; more than was seen at any size.
_OVERHEAD_BYTES, _OVERHEAD_SHARE = 64 * MIB, 0.03
_EXTENT_MAX_BYTES = 1 << 30


def volume_gib(directory: Path) -> int:
    """The smallest volume that holds a bundle."""
    data = sum(_data_bytes(file) for file in directory.iterdir())
    return -(-int(data * (1 + _OVERHEAD_SHARE) + _OVERHEAD_BYTES) // GIB)


def copy(source: Path, target: Path) -> None:
    """Copy all files of a flat directory, with their modes and the directory's. Raises OSError (ENOSPC too)."""
    for file in sorted(source.iterdir()):
        _copy_file(file, target / file.name)
    target.chmod(source.stat().st_mode & 0o7777)
    _sync(target)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("xb") as writer:
        status = os.fstat(reader.fileno())
        for start, end in _extents(reader.fileno(), status.st_size):
            _copy_extent(reader.fileno(), writer.fileno(), start, end)
        os.ftruncate(writer.fileno(), status.st_size)
        os.fchmod(writer.fileno(), status.st_mode & 0o7777)
        os.fsync(writer.fileno())


def _copy_extent(reader: int, writer: int, start: int, end: int) -> None:
    os.lseek(writer, start, os.SEEK_SET)
    while start < end:
        copied = os.sendfile(writer, reader, start, min(end - start, _EXTENT_MAX_BYTES))
        if copied == 0:
            raise OSError(f"a file became shorter while it was copied, at byte {start}")
        start += copied


def _data_bytes(file: Path) -> int:
    """What a copy takes, in whole blocks."""
    with file.open("rb") as reader:
        size = os.fstat(reader.fileno()).st_size
        extents = _extents(reader.fileno(), size)
        return sum(-(-(end - start) // BLOCK_BYTES) * BLOCK_BYTES for start, end in extents)


def _extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has data: [start, end) each, in order."""
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError:  # ENXIO: a hole up to the end
            return
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, end


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
