"""A bundle's working set: which parts of its files the first forks had to read, kept beside the manifest.

A file format, no adapter, as the manifest is. Blocks of a volume that was just made from a snapshot come slowly, each
at its first touch. Who reads these parts first, in order and in large pieces, has all that a fork reads, and has
checked it.

Recorded by the page cache: it is emptied of the bundle's files before the verification forks run, and looked at
afterwards. So a set is wider than what the guests touched, by what this host reads ahead around each touch.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import EnvironmentFault, FailureKind
from infra import page_cache
from infra.manifest import CHUNK_BYTES, FileRecord, Manifest, break_seal, opened, sealed

NAME = "working-set.json"
VERSION = 1
# What lies between two parts is read with them if it is no more: one read is cheaper than two.
_GAP_BYTES = 64 << 10
# Of what should be forgotten this share may stay; more of it, and this host cannot tell what is read.
_MAY_STAY = 1 / 64
_PIECE_BYTES, _PIECES_AHEAD = 1 << 20, 16
# Of one file, and of all that is said of them.
_MOST_PARTS, _MOST_TEXT_BYTES = 1 << 13, 4 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one file that lie together."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class PartsOfFile:
    """What is read of one file: in order, apart from each other; `sha256` is of all their bytes in that order."""

    parts: tuple[Part, ...]
    sha256: str


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """What the first forks read, by the names of the manifest."""

    files: Mapping[str, PartsOfFile]

    @property
    def size_bytes(self) -> int:
        """How much is read before a first fork."""
        return sum(part.length for file in self.files.values() for part in file.parts)


def forget(directory: Path, manifest: Manifest) -> bool:
    """Empty the page cache of a bundle's files; whether it is empty, so that what comes in from now on is being read.

    It is not where files live in memory, or where this user may not see what is cached. Raises OSError.
    """
    stayed = total = 0
    for name in manifest.files:
        with (directory / name).open("rb", buffering=0) as file:
            page_cache.forget(file.fileno())
            stayed += sum(length for _, length in page_cache.resident(file.fileno()))
            total += sum(
                end - start for start, end in _data(file.fileno(), 0, manifest.files[name].size)
            )
    return stayed <= total * _MAY_STAY


def record(directory: Path, manifest: Manifest) -> WorkingSet:
    """What the page cache has of the bundle by now, without holes; small files whole, the device state among them.

    Reads those parts. Raises OSError.
    """
    parts = {
        name: _cached(directory / name) if file.size > CHUNK_BYTES else (Part(0, file.size),)
        for name, file in manifest.files.items()
        if file.size
    }
    return WorkingSet(
        {
            name: PartsOfFile(found, _digest(directory / name, found))
            for name, found in parts.items()
        }
    )


def write(directory: Path, found: WorkingSet) -> None:
    """Write it beside the manifest, whole or not at all. Raises OSError."""
    files = {
        name: {"parts": [[part.offset, part.length] for part in file.parts], "sha256": file.sha256}
        for name, file in found.files.items()
    }
    draft = directory / f".{NAME}"
    try:
        draft.write_text(sealed({"version": VERSION, "files": files}))
        draft.replace(directory / NAME)
    finally:
        draft.unlink(missing_ok=True)


def read(directory: Path, manifest: Manifest) -> WorkingSet | None:
    """None where none was recorded, or by a release whose format this one does not know.

    It comes from a disk: nothing in it is believed that the manifest does not bear out. Raises
    EnvironmentFault(snapshot_corrupt) for one that is not as it was written.
    """
    try:
        with opened(directory, NAME) as file:
            text = file.read(_MOST_TEXT_BYTES + 1)
    except FileNotFoundError:
        return None
    try:
        return _parse(text, manifest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _corrupt(directory, NAME, f"it cannot be read: {error!r}") from error


def check(directory: Path, known: WorkingSet) -> None:
    """Read all of it, in order; it is as it was recorded, and in the page cache. Some tens of MiB, mostly.

    Raises EnvironmentFault(snapshot_corrupt) with the file that is not.
    """
    what = "what the first forks read of it has changed"
    for name, file in known.files.items():
        seen = _digest(directory / name, file.parts)
        if seen != file.sha256:
            raise _corrupt(directory, name, what, expected_sha256=file.sha256, seen_sha256=seen)


def _cached(file: Path) -> tuple[Part, ...]:
    with file.open("rb", buffering=0) as opened:
        fd = opened.fileno()
        found = tuple(_without_holes(fd, page_cache.resident(fd)))
    gap_bytes = _GAP_BYTES
    while len(parts := tuple(_merged(found, gap_bytes))) > _MOST_PARTS:
        gap_bytes *= 2
    return parts


def _merged(parts: Iterable[Part], gap_bytes: int) -> Iterator[Part]:
    """Parts in order; those with no more than that between them as one."""
    last: Part | None = None
    for part in parts:
        if last is None:
            last = part
        elif part.offset - _end(last) <= gap_bytes:
            last = Part(last.offset, _end(part) - last.offset)
        else:
            yield last
            last = part
    if last is not None:
        yield last


def _without_holes(fd: int, runs: Iterable[tuple[int, int]]) -> Iterator[Part]:
    """Of these (offset, length) what a disk has to bring: reading a hole costs nothing."""
    for offset, length in runs:
        for start, end in _data(fd, offset, offset + length):
            yield Part(start, end - start)


def _data(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where a file has data from `start` to `end`, as (start, end)."""
    with contextlib.suppress(OSError):  # ENXIO: no data from here to the file's end
        while start < end:
            found = os.lseek(fd, start, os.SEEK_DATA)
            start = min(os.lseek(fd, found, os.SEEK_HOLE), end)
            if found < end:
                yield found, start


def _digest(file: Path, parts: Iterable[Part]) -> str:
    """The sha256 of these parts. The disk always has the next pieces to bring, and is asked for nothing else."""
    digest = hashlib.sha256()
    pieces = tuple(_pieces(parts))
    with file.open("rb", buffering=0) as opened:
        fd = opened.fileno()
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for piece in pieces[:_PIECES_AHEAD]:
            _ask_for(fd, piece)
        for piece, later in itertools.zip_longest(pieces, pieces[_PIECES_AHEAD:]):
            if later is not None:
                _ask_for(fd, later)
            digest.update(os.pread(fd, piece.length, piece.offset))
    return digest.hexdigest()


def _pieces(parts: Iterable[Part]) -> Iterator[Part]:
    for part in parts:
        for offset in range(part.offset, _end(part), _PIECE_BYTES):
            yield Part(offset, min(_PIECE_BYTES, _end(part) - offset))


def _ask_for(fd: int, piece: Part) -> None:
    os.posix_fadvise(fd, piece.offset, piece.length, os.POSIX_FADV_WILLNEED)


def _end(part: Part) -> int:
    return part.offset + part.length


def _parse(text: bytes, manifest: Manifest) -> WorkingSet | None:
    if len(text) > _MOST_TEXT_BYTES:
        raise ValueError(f"it has more than {_MOST_TEXT_BYTES} bytes")
    raw = json.loads(text)
    break_seal(raw)
    if raw["version"] != VERSION:
        return None
    files = {
        str(name): PartsOfFile(_parts(file["parts"], manifest.files[name]), str(file["sha256"]))
        for name, file in raw["files"].items()
    }
    for name, known in manifest.files.items():
        if 0 < known.size <= CHUNK_BYTES and files[name].parts != (Part(0, known.size),):
            raise ValueError(f"{name} is not in it whole")
    return WorkingSet(files)


def _parts(raw: Any, file: FileRecord) -> tuple[Part, ...]:
    if len(raw) > _MOST_PARTS:
        raise ValueError(f"{len(raw)} parts; there are {_MOST_PARTS} at most")
    end = 0
    parts = tuple(Part(_whole(offset), _whole(length)) for offset, length in raw)
    for part in parts:
        if part.offset < end or part.length <= 0 or _end(part) > file.size:
            raise ValueError(f"{part} is out of order, or not in a file of {file.size} bytes")
        end = _end(part)
    return parts


def _whole(raw: Any) -> int:
    if type(raw) is not int:
        raise ValueError(f"{raw!r} is no whole number")
    return raw


def _corrupt(directory: Path, name: str, what: str, **seen: object) -> EnvironmentFault:
    message = f"bundle {directory.name}: {name}: {what}"
    told = {"bundle": directory.name, "file": name, **seen}
    return EnvironmentFault(FailureKind.SNAPSHOT_CORRUPT, message, **told)
