"""The manifest of a bundle: what belongs together, and the sha256 of every 2 MiB of it.

A file format, no adapter: the hypervisor writes it, the keepers of bundles check it. QEMU itself accepts a state or a
memory file with flipped bits and runs on; the guest then fails like a task would.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from app.domain.machine import Accelerator, Bundle, RestoreKey, Shape
from app.errors import EnvironmentFault, FailureKind

NAME = "manifest.json"
VERSION = 2
_SEAL = "sha256"
CHUNK_BYTES = 2 << 20
# A tenth of it would describe a guest of a TiB.
MOST_BYTES = 512 << 20
# What a fork reads at once: device state, tools and other small files whole, and the first part of the large ones.
_SMALL_BYTES, _FIRST_CHUNKS = 32 << 20, 8
_NO_FILE = "it is no plain file"
# The folder that every ext4 file system is made with.
_EVERY_VOLUMES = "lost+found"
# Of JSON that is nested without end, and of numbers that are none.
_ENDLESS = (RecursionError, OverflowError)


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
    (directory / NAME).write_text(sealed({"version": VERSION, **asdict(manifest)}))


def sealed(raw: Mapping[str, Any]) -> str:
    """A manifest's text, with its own sha256 in it: one flipped bit may leave sound JSON that says something else."""
    return json.dumps({**raw, _SEAL: _digest_of(raw)}, sort_keys=True, indent=1) + "\n"


def break_seal(raw: dict[str, Any]) -> None:
    """Take the sha256 out of what a sealed text says. Raises ValueError, KeyError where it is not what was sealed."""
    seal = raw.pop(_SEAL)
    if seal != _digest_of(raw):
        raise ValueError(f"its own sha256 is not {seal!r}")


def read(directory: Path) -> Manifest:
    """Raises EnvironmentFault(snapshot_unavailable) where there is none, or a sound one of another version (`reason`
    wrong_version), (snapshot_corrupt) where it cannot be read.
    """
    try:
        with opened(directory, NAME) as file:
            raw = _loaded(file.read(MOST_BYTES + 1))
        if raw["version"] != VERSION and _is_whole(raw):
            raise _of_another_version(directory, raw["version"])
        return _parse(raw)
    except FileNotFoundError as error:
        raise EnvironmentFault(
            FailureKind.SNAPSHOT_UNAVAILABLE, f"bundle {directory.name} is not here"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, *_ENDLESS) as error:
        raise _corrupt(directory, NAME, f"it cannot be read: {error!r}") from error


def opened(directory: Path, name: str) -> BinaryIO:
    """A file of a bundle for reading. It comes from a disk: a link would lead out of that, a pipe would never answer.

    Raises EnvironmentFault(snapshot_corrupt) for what is no plain file, FileNotFoundError, OSError.
    """
    try:
        fd = os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _corrupt(directory, name, _NO_FILE) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _corrupt(directory, name, _NO_FILE)
    return os.fdopen(fd, "rb")


def check_sizes(directory: Path, manifest: Manifest) -> None:
    """Each file is there with its size: cheap enough before every fork.

    Raises EnvironmentFault(snapshot_unavailable) for one that is missing, (snapshot_corrupt) for one of another size
    and for whatever is no plain file.
    """
    _check_plain(directory)
    for name, expected in manifest.files.items():
        try:
            size = (directory / name).stat().st_size
        except FileNotFoundError as error:
            raise EnvironmentFault(
                FailureKind.SNAPSHOT_UNAVAILABLE,
                f"bundle {directory.name}: {name}: it is missing",
                bundle=directory.name,
                file=name,
            ) from error
        if size != expected.size:
            what = f"it has {size} bytes instead of {expected.size}"
            raise _corrupt(directory, name, what, expected_bytes=expected.size, seen_bytes=size)


def check_working_set(directory: Path, manifest: Manifest) -> None:
    """What a fork reads at once is as it was frozen: some tens of MiB at most. Raises as `check_chunks`."""
    check_sizes(directory, manifest)
    for name, expected in manifest.files.items():
        first = None if expected.size <= _SMALL_BYTES else _FIRST_CHUNKS
        _check_file(directory, name, expected, first)


def check_chunks(
    directory: Path, manifest: Manifest, after_each: Callable[[], object] = lambda: None
) -> None:
    """Every byte is as it was frozen. Reads all of it; `after_each` chunk is where who is in no hurry rests.

    Raises EnvironmentFault(snapshot_corrupt) with the first chunk that is not, (snapshot_unavailable).
    """
    check_sizes(directory, manifest)
    for name, expected in manifest.files.items():
        _check_file(directory, name, expected, None, after_each)


def _check_plain(directory: Path) -> None:
    """Also of what the manifest does not name: a fork's files are opened by names of their own."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if not entry.is_file(follow_symlinks=False) and entry.name != _EVERY_VOLUMES:
                raise _corrupt(directory, entry.name, _NO_FILE)


def _check_file(
    directory: Path,
    name: str,
    expected: FileRecord,
    first: int | None,
    after_each: Callable[[], object] = lambda: None,
) -> None:
    """The first so many chunks of a file, or all."""
    seen = _digests(directory / name, expected.size)
    for index, (was, is_now) in enumerate(zip(expected.chunks[:first], seen, strict=False)):
        if is_now != was:
            raise _corrupt(
                directory,
                name,
                f"chunk {index} of 2 MiB has changed",
                chunk=index,
                expected_sha256=was,
                seen_sha256=is_now,
            )
        after_each()


def _loaded(text: bytes) -> Any:
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    return json.loads(text)


def _parse(raw: Any) -> Manifest:
    if raw["version"] != VERSION:
        raise ValueError(f"version {raw['version']!r}; this server reads {VERSION}")
    break_seal(raw)
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


def _is_whole(raw: Any) -> bool:
    """It says what it said when it was written."""
    return bool(raw[_SEAL] == _digest_of({name: raw[name] for name in raw if name != _SEAL}))


def _of_another_version(directory: Path, version: object) -> EnvironmentFault:
    return EnvironmentFault(
        FailureKind.SNAPSHOT_UNAVAILABLE,
        f"bundle {directory.name} is of version {version}, and this server reads {VERSION}: rebuild its snapshot",
        bundle=directory.name,
        reason="wrong_version",
        version=version,
        reads=VERSION,
    )


def _digest_of(raw: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()


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


def _corrupt(directory: Path, name: str, what: str, **seen: object) -> EnvironmentFault:
    message = f"bundle {directory.name}: {name}: {what}"
    told = {"bundle": directory.name, "file": name, **seen}
    return EnvironmentFault(FailureKind.SNAPSHOT_CORRUPT, message, **told)
