"""`Bundles` as folders of this host's disk."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from app.domain.machine import Bundle
from app.errors import BadRequest, EnvironmentFault, FailureKind
from infra import manifest


class LocalBundles:
    """Bundles under `root`: `staged/<id>` while they are made, `stored/<id>` for good.

    `checked/<id>` marks that every byte was read. The mark names each file's inode, size and
    time of change, so a file replaced since is read again.
    """

    def __init__(self, root: Path) -> None:
        self._staged = root / "staged"
        self._stored = root / "stored"
        self._checked = root / "checked"
        for folder in (self._staged, self._stored, self._checked):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._open: dict[str, Bundle] = {}

    def staging(self, bundle_id: str) -> Path:
        """Where a new bundle is to be made."""
        path = self._staged / _plain(bundle_id)
        _remove(path)
        return path

    def store(self, bundle_id: str) -> Bundle:
        """Keep it for good: moved, on the disk, every chunk checked. Again for a bundle that is stored is safe."""
        staged, stored = self._staged / _plain(bundle_id), self._stored / bundle_id
        if staged.is_dir() and not stored.exists():
            _flush(staged)
            staged.rename(stored)
            _flush_entry(self._stored)
        self._open.pop(stored.name, None)
        (self._checked / stored.name).unlink(missing_ok=True)
        return self.open(stored.name)

    def open(self, bundle_id: str) -> Bundle:
        """Ready to fork from. All of it is read the first time on this host, never again while its files stay."""
        known = self._open.get(bundle_id)
        if known is not None and known.directory.is_dir():
            return known
        directory = self._directory(bundle_id)
        contents = manifest.read(directory)
        mark = _mark(directory, contents)
        if mark != self._last_mark(bundle_id):
            manifest.check_chunks(directory, contents)
            (self._checked / bundle_id).write_text(mark)
        bundle = self._open[bundle_id] = contents.bundle(directory)
        return bundle

    def mounted(self) -> tuple[str, ...]:
        """Those that can be forked from at once: here, and checked."""
        return tuple(name for name in self.known() if (self._checked / name).exists())

    def known(self) -> tuple[str, ...]:
        """Every bundle's folder, finished or not."""
        here = {entry.name for folder in (self._stored, self._staged) for entry in folder.iterdir()}
        return tuple(sorted(name for name in here if not name.startswith(".")))

    def delete(self, bundle_id: str) -> None:
        """Remove it, stored or staged. Machines that run on it keep its files open until they end."""
        name = _plain(bundle_id)
        self._open.pop(name, None)
        (self._checked / name).unlink(missing_ok=True)
        _remove(self._stored / name)
        _remove(self._staged / name)

    def _directory(self, bundle_id: str) -> Path:
        for folder in (self._stored, self._staged):
            directory = folder / _plain(bundle_id)
            if directory.is_dir():
                return directory
        raise EnvironmentFault(
            FailureKind.SNAPSHOT_UNAVAILABLE, f"bundle {bundle_id} is not on this host"
        )

    def _last_mark(self, bundle_id: str) -> str | None:
        try:
            return (self._checked / bundle_id).read_text()
        except FileNotFoundError:
            return None


def _plain(name: str) -> str:
    if not name or Path(name).name != name or name.startswith("."):
        raise BadRequest("bad_bundle_id", f"{name!r} is no bundle's name")
    return name


def _mark(directory: Path, contents: manifest.Manifest) -> str:
    """Changes whenever a file of the bundle is written or replaced."""
    manifest.check_sizes(directory, contents)
    marks = {}
    for name in (manifest.NAME, *contents.files):
        stat = (directory / name).stat()
        marks[name] = [stat.st_ino, stat.st_size, stat.st_mtime_ns]
    return json.dumps(marks, sort_keys=True)


def _remove(path: Path) -> None:
    """Out of sight in one step, then away: a crash between leaves no half bundle under its name."""
    if path.exists():
        doomed = path.with_name(f".{path.name}.{os.getpid()}")
        path.rename(doomed)
        shutil.rmtree(doomed)


def _flush(directory: Path) -> None:
    for file in directory.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
    _flush_entry(directory)


def _flush_entry(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
