"""A deterministic tar of a local path: the same content makes the same bytes on every machine.

Sorted names, uid and gid 0, one mtime, permission bits kept (setuid and setgid dropped), symbolic links kept as
links, hard links as files of their own. GNU format: the small tars of guests read its long names, not the POSIX
extensions.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path

from promigence.errors import BadDefinition

# 1980-01-02: archives of the ZIP family, wheels among them, cannot say anything earlier in any time zone.
MTIME = 315_619_200


def pack(source: Path, into: Path, name: str | None = None) -> str:
    """Write the tar of a directory's content, or of one file (as `name`); its sha256.

    Raises BadDefinition for what a guest cannot be given: nothing there, or a socket, device or pipe inside.
    """
    with into.open("w+b") as out:
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path, inside in _members(source, name or source.name):
                _add(tar, path, inside)
        out.seek(0)
        return _sha256(out)


def _members(source: Path, name: str) -> Iterator[tuple[Path, str]]:
    if not source.is_dir():
        yield source, name
        return
    for path in sorted(_walk(source), key=lambda path: path.relative_to(source).parts):
        yield path, path.relative_to(source).as_posix()


def _walk(directory: Path) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        for entry in entries:
            path = Path(entry.path)
            yield path
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(path)


def _add(tar: tarfile.TarFile, path: Path, inside: str) -> None:
    try:
        seen = path.lstat()
    except FileNotFoundError as error:
        raise BadDefinition(f"files: there is no {path}") from error
    member = tarfile.TarInfo(inside)
    member.mtime = MTIME
    member.mode = stat.S_IMODE(seen.st_mode) & 0o1777
    if stat.S_ISLNK(seen.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
        tar.addfile(member)
    elif stat.S_ISDIR(seen.st_mode):
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
    elif stat.S_ISREG(seen.st_mode):
        _add_file(tar, member, path)
    else:
        raise BadDefinition(f"files: {path} is neither a file, a directory nor a link")


def _add_file(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    with path.open("rb") as file:
        member.size = os.fstat(file.fileno()).st_size
        try:
            tar.addfile(member, file)
        except OSError as error:
            raise BadDefinition(f"files: {path} could not be read whole: {error}") from error


def _sha256(file: BufferedRandom) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()
