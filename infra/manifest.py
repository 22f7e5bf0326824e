"""The manifest of a bundle: what belongs together, and the sha256 of every 2 MiB of it.

A file format, no adapter: the hypervisor writes it, the keepers of bundles check it. QEMU itself accepts a state or a
memory file with flipped bits and runs on; the guest then fails like a task would.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.domain.machine import Accelerator, Bundle, RestoreKey, Shape
from app.errors import EnvironmentFault, FailureKind

NAME = "manifest.json"
VERSION = 1
CHUNK_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of a bundle: its size and the sha256 of each chunk in order (the last one may be short)."""

    size: int
    chunks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that a bundle says of itself. `files` by name; `taken_wall_ns` is for people."""

    shape: Shape
    restore_key: RestoreKey
    boot_id: str
    disk_id: str
    taken_wall_ns: int
    files: Mapping[str, FileRecord]

    def bundle(self, directory: Path) -> Bundle:
        """The bundle in this directory, whose name is its id."""
        return Bundle(
            bundle_id=directory.name,
            directory=directory,
            shape=self.shape,
            restore_key=self.restore_key,
            boot_id=self.boot_id,
            disk_id=self.disk_id,
        )


def record(file: Path) -> FileRecord:
    """Size and digests of a file; holes are not read."""
    size = file.stat().st_size
    return FileRecord(size, tuple(_digests(file, size)))


def write(directory: Path, manifest: Manifest) -> None:
    """Write it beside the files that it describes."""
    text = json.dumps({"version": VERSION, **asdict(manifest)}, sort_keys=True, indent=1)
    (directory / NAME).write_text(text + "\n")


def read(directory: Path) -> Manifest:
    """Raises EnvironmentFault(snapshot_unavailable) where there is none, (snapshot_corrupt) where it cannot be read."""
    try:
        return _parse(json.loads((directory / NAME).read_text()))
    except FileNotFoundError as error:
        raise EnvironmentFault(
            FailureKind.SNAPSHOT_UNAVAILABLE, f"bundle {directory.name} is not here"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _corrupt(directory, NAME, f"it cannot be read: {error!r}") from error


def check_sizes(directory: Path, manifest: Manifest) -> None:
    """Each file is there with its size: cheap enough before every fork. Raises EnvironmentFault(snapshot_corrupt)."""
    for name, expected in manifest.files.items():
        try:
            size = (directory / name).stat().st_size
        except FileNotFoundError as error:
            raise _corrupt(directory, name, "it is missing") from error
        if size != expected.size:
            raise _corrupt(directory, name, f"it has {size} bytes instead of {expected.size}")


def check_chunks(directory: Path, manifest: Manifest) -> None:
    """Every byte is as it was frozen. Reads all of it. Raises EnvironmentFault(snapshot_corrupt)."""
    check_sizes(directory, manifest)
    for name, expected in manifest.files.items():
        seen = _digests(directory / name, expected.size)
        for index, (is_now, was) in enumerate(zip(seen, expected.chunks, strict=True)):
            if is_now != was:
                raise _corrupt(directory, name, f"chunk {index} of 2 MiB has changed")


def _parse(raw: Any) -> Manifest:
    if raw["version"] != VERSION:
        raise ValueError(f"version {raw['version']!r}; this server reads {VERSION}")
    key = raw["restore_key"]
    accelerator = Accelerator(key["accelerator"])
    return Manifest(
        shape=Shape(**raw["shape"]),
        restore_key=RestoreKey(**{**key, "accelerator": accelerator}),
        boot_id=str(raw["boot_id"]),
        disk_id=str(raw["disk_id"]),
        taken_wall_ns=int(raw["taken_wall_ns"]),
        files={_plain(name): _file_record(file) for name, file in raw["files"].items()},
    )


def _file_record(raw: Any) -> FileRecord:
    size, chunks = int(raw["size"]), tuple(map(str, raw["chunks"]))
    if len(chunks) != -(-size // CHUNK_BYTES):
        raise ValueError(f"{len(chunks)} chunks for {size} bytes")
    return FileRecord(size, chunks)


def _plain(name: str) -> str:
    if Path(name).name != name:
        raise ValueError(f"{name!r} is no plain file name")
    return name


def _digests(file: Path, size: int) -> Iterator[str]:
    with file.open("rb", buffering=0) as source:
        for start in range(0, size, CHUNK_BYTES):
            length = min(CHUNK_BYTES, size - start)
            if _is_hole(source.fileno(), start, length):
                yield _digest_of_zeros(length)
            else:
                yield hashlib.sha256(os.pread(source.fileno(), length, start)).hexdigest()


def _is_hole(fd: int, start: int, length: int) -> bool:
    try:
        return os.lseek(fd, start, os.SEEK_DATA) >= start + length
    except OSError:  # ENXIO: no data from here to the end
        return True


_ZEROS_DIGEST: dict[int, str] = {}


def _digest_of_zeros(length: int) -> str:
    if length not in _ZEROS_DIGEST:
        _ZEROS_DIGEST[length] = hashlib.sha256(bytes(length)).hexdigest()
    return _ZEROS_DIGEST[length]


def _corrupt(directory: Path, name: str, what: str) -> EnvironmentFault:
    message = f"bundle {directory.name}: {name}: {what}"
    return EnvironmentFault(FailureKind.SNAPSHOT_CORRUPT, message, bundle=directory.name, file=name)
