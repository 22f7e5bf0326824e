"""Bytes by their sha256, in a local folder that API and hosts share.

Where they run as users of their own, the folder is made for them beforehand with a group of both and mode 2770: what is
in it then is the group's too.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from app.errors import BadRequest, NotFound, TooLarge, Unavailable

_BLOCK_BYTES = 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


class FolderBlobs:
    """`Blobs`. A file appears under its hash whole or not at all; what an upload left half done is never seen."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, source: BinaryIO, *, expect: str | None, limit_bytes: int) -> tuple[str, int]:
        """Keep bytes; returns (sha256, size). Raises BadRequest(hash_mismatch), TooLarge, Unavailable."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile(dir=self._directory, prefix=".new-") as fresh:
                sha256, size = _copy(source, fresh, limit_bytes)
                if expect is not None and sha256 != expect:
                    raise BadRequest(
                        "hash_mismatch", f"the bytes have sha256 {sha256}, not {expect}"
                    )
                shared = _shared(self._directory)
                if shared:
                    os.fchmod(fresh.fileno(), 0o660)
                self._keep(Path(fresh.name), sha256, folder_mode=0o770 if shared else 0o700)
        except OSError as error:
            raise Unavailable("blobs_away", f"files cannot be kept: {error.strerror}") from error
        return sha256, size

    def open(self, sha256: str) -> BinaryIO:
        """Raises NotFound."""
        try:
            return self._path(sha256).open("rb")
        except FileNotFoundError as error:
            raise NotFound("unknown_file", f"no file {sha256} was uploaded") from error

    def has(self, sha256: str) -> bool:
        """Whether the bytes are here. If so they are young again: who asks is about to name them."""
        return _made_young(self._path(sha256))

    def delete(self, sha256s: Iterable[str]) -> None:
        """Forget bytes. Twice is safe."""
        for sha256 in sha256s:
            self._path(sha256).unlink(missing_ok=True)

    def older_than(self, age_ns: int) -> frozenset[str]:
        """Bytes that nobody has put or asked for since."""
        found = self._directory.glob("[0-9a-f][0-9a-f]/*")
        return frozenset(path.name for path in found if _is_older(path, age_ns))

    def delete_older(self, sha256: str, age_ns: int) -> bool:
        """Forget bytes unless they are young again; whether they were forgotten."""
        path = self._path(sha256)
        if not _is_older(path, age_ns):
            return False
        path.unlink(missing_ok=True)
        return True

    def _keep(self, fresh: Path, sha256: str, *, folder_mode: int) -> None:
        kept = self._path(sha256)
        with suppress(FileExistsError):
            kept.parent.mkdir(mode=0o700)
            # Past this process's umask.
            kept.parent.chmod(folder_mode)
        # A link beside the temporary file: who loses the race finds the very same bytes there.
        try:
            os.link(fresh, kept)
        except FileExistsError:
            _made_young(kept)
            return
        _sync(kept.parent)

    def _path(self, sha256: str) -> Path:
        if not _SHA256.fullmatch(sha256):
            raise BadRequest("bad_hash", "a sha256 is 64 lower-case hex digits")
        return self._directory / sha256[:2] / sha256


def _shared(folder: Path) -> bool:
    """Whether it hands on its group, and the group may write."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_ISGID and mode & stat.S_IWGRP)


def _made_young(path: Path) -> bool:
    """Set its time to now; False where there is no such file."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _is_older(path: Path, age_ns: int) -> bool:
    try:
        return time.time_ns() - path.stat().st_mtime_ns > age_ns
    except FileNotFoundError:
        return False


def _copy(
    source: BinaryIO, fresh: tempfile._TemporaryFileWrapper[bytes], limit: int
) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while block := source.read(_BLOCK_BYTES):
        size += len(block)
        if size > limit:
            raise TooLarge("too_large", f"more than {limit} bytes", limit_bytes=limit)
        digest.update(block)
        fresh.write(block)
    fresh.flush()
    os.fsync(fresh.fileno())
    return digest.hexdigest(), size


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
