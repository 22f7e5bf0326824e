"""Files in and out of a machine, by verbs of the shell on its tools disk."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from app.errors import BadRequest, EnvironmentFault, FailureKind, NotFound, TooLarge
from infra.guest.ssh import Finished, SshChannel

# Seconds of silence, and in all, after which a transfer counts as dead. A disk of 64 GiB passes in the latter.
_SILENCE_S = 60.0
_WITHIN_S = 2 * 3600.0
_RESULT_S = 30.0
_CHUNK_BYTES = 65536
_PATH_LIMIT = 4000
_MISSING, _DIRECTORY, _TOO_LARGE, _IRREGULAR = 10, 11, 12, 14


def upload(channel: SshChannel, source: BinaryIO, guest_path: str, mode: int) -> int:
    """Write a file, parents made; bytes written. The name is taken only by a whole file."""
    sent = 0

    def frames() -> Iterator[bytes]:
        """Length and bytes, and a length of zero at the end: a cut upload is told from a whole one."""
        nonlocal sent
        while data := source.read(_CHUNK_BYTES):
            sent += len(data)
            yield struct.pack(">I", len(data)) + data
        yield struct.pack(">I", 0)

    command = f":put {mode & 0o7777:o} {_path(guest_path)}"
    finished = channel.run(
        command, sink=_ignore, feed=frames(), silence_s=_SILENCE_S, within_s=_WITHIN_S
    )
    _check(finished, guest_path, missing=BadRequest)
    return sent


def download(channel: SshChannel, guest_path: str, sink: BinaryIO, limit_bytes: int) -> int:
    """Read a file; bytes read. Raises NotFound, BadRequest, TooLarge."""
    total = 0

    def keep(data: bytes) -> None:
        nonlocal total
        total += len(data)
        if total > limit_bytes:
            raise _too_large(guest_path, limit_bytes)
        sink.write(data)

    command = f":get {limit_bytes} {_path(guest_path)}"
    finished = channel.run(command, sink=keep, silence_s=_SILENCE_S, within_s=_WITHIN_S)
    if finished.exit_code == _TOO_LARGE:
        raise _too_large(guest_path, limit_bytes)
    _check(finished, guest_path, missing=NotFound)
    return total


def result(channel: SshChannel, exec_id: str, limit_bytes: int) -> bytes | None:
    """A grade's result file, None if it wrote none. Raises BadRequest(not_a_file), TooLarge."""
    kept = bytearray()

    def keep(data: bytes) -> None:
        kept.extend(data)
        if len(kept) > limit_bytes:
            raise _too_large("the result file", limit_bytes)

    command = f":result {limit_bytes} {exec_id}"
    finished = channel.run(command, sink=keep, silence_s=_RESULT_S, within_s=_RESULT_S)
    if finished.exit_code == _MISSING:
        return None
    if finished.exit_code == _TOO_LARGE:
        raise _too_large("the result file", limit_bytes)
    if finished.exit_code == _IRREGULAR:
        raise BadRequest("not_a_file", "the result is not a regular file of its own directory")
    if finished.exit_code:
        raise EnvironmentFault(
            FailureKind.GUEST_LOST, f"a grade's result cannot be read: {finished.message}"
        )
    return bytes(kept)


def unpack(channel: SshChannel, tar: BinaryIO, guest_path: str) -> None:
    """Unpack an uncompressed tar under a directory. Raises BadRequest, with what tar said."""
    command = f":untar {_path(guest_path)}"
    chunks = iter(lambda: tar.read(_CHUNK_BYTES), b"")
    finished = channel.run(
        command, sink=_ignore, feed=chunks, silence_s=_SILENCE_S, within_s=_WITHIN_S
    )
    _check(finished, guest_path, missing=BadRequest)


def _path(guest_path: str) -> str:
    encoded = guest_path.encode()
    if not guest_path.startswith("/") or b"\0" in encoded or len(encoded) > _PATH_LIMIT:
        raise BadRequest("bad_path", f"{guest_path[:200]!r} is not an absolute path in the machine")
    return encoded.hex()


def _check(finished: Finished, path: str, missing: type[BadRequest] | type[NotFound]) -> None:
    if finished.exit_code == 0:
        return
    said = finished.message or f"the machine's shell ended with {finished.exit_code}"
    if finished.exit_code == _MISSING:
        # What is asked for and is not there has the code that the API answers 404 by.
        code = "not_found" if missing is NotFound else "no_such_file"
        raise missing(code, said, path=path)
    if finished.exit_code == _DIRECTORY:
        raise BadRequest("is_a_directory", said, path=path)
    raise BadRequest("path_not_usable", said, path=path)


def _too_large(path: str, limit_bytes: int) -> TooLarge:
    return TooLarge("too_large", f"{path} has more than {limit_bytes} bytes", path=path)


def _ignore(_data: bytes) -> None:
    """What the program prints is of no interest."""
