"""`Bundles` as folders of this host's disk."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.domain.machine import Bundle
from app.errors import BadRequest, EnvironmentFault, FailureKind
from infra import manifest, working_set

# Between two chunks of 2 MiB when nobody waits: hashing one takes a few milliseconds.
_REST_S = 0.005
# A fork opens its bundle: when that was is written down no more often than this.
_USED_EVERY_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Mounted:
    """A bundle that forks come from. `mark` is of its files as they were when its working set was read."""

    bundle: Bundle
    mark: str


class LocalBundles:
    """Bundles under `root`: `staged/<id>` while they are made, `stored/<id>` for good.

    `checked/<id>` marks that every byte was read since this host's boot, `refused/<id>` what was found wrong. A mark
    names each file's inode, size and time of change, so a file that changed since is read again, and a bundle that was
    mended is no longer refused. What is refused stays where it is: it is the evidence. `used/<id>` is as old as the
    bundle's last use; `watched/<id>` marks what only forks may read now.
    """

    stores_elsewhere = False

    def __init__(self, root: Path, boot_id: str = "") -> None:
        self._staged = root / "staged"
        self._stored = root / "stored"
        self._checked = root / "checked"
        self._refusals = root / "refused"
        self._used = root / "used"
        self._watched = root / "watched"
        self._marks = (self._checked, self._refusals, self._used, self._watched)
        for folder in (self._staged, self._stored, *self._marks):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._boot_id = boot_id
        self._mounted: dict[str, _Mounted] = {}
        self._last_use_ns: dict[str, int] = {}
        self._mounting = threading.Lock()

    def staging(self, bundle_id: str) -> Path:
        """Where a new bundle is to be made."""
        path = self._staged / _plain(bundle_id)
        _remove(path)
        return path

    def watch(self, bundle_id: str) -> None:
        """Empty the page cache of a bundle that was just frozen, and read nothing of it until `record`."""
        staged, watched = self._staged / _plain(bundle_id), self._watched / bundle_id
        with contextlib.suppress(EnvironmentFault, OSError):
            contents = manifest.read(staged)
            with contextlib.ExitStack() as undo:
                undo.callback(watched.unlink)
                watched.write_text(self._mark(staged))
                if working_set.forget(staged, contents):
                    undo.pop_all()

    def record(self, bundle_id: str) -> int:
        """Keep what the page cache has of it by now; once, and that is what the next call finds."""
        with contextlib.suppress(EnvironmentFault, OSError):
            directory, watched = self._directory(bundle_id), self._watched / bundle_id
            contents = manifest.read(directory)
            if _text(watched) == self._mark(directory):
                working_set.write(directory, working_set.record(directory, contents))
                watched.unlink()
            known = working_set.read(directory, contents)
            return known.size_bytes if known else 0
        return 0

    def store(self, bundle_id: str) -> Bundle:
        """Keep it for good: moved, on the disk, every chunk checked. Again for a bundle that is stored is safe."""
        staged, stored = self._staged / _plain(bundle_id), self._stored / bundle_id
        if staged.is_dir() and not stored.exists():
            _flush(staged)
            staged.rename(stored)
            _flush_entry(self._stored)
        self._read(bundle_id, rest_s=0.0)
        return self.open(bundle_id)

    def mount(self, bundle_id: str) -> None:
        """What is on this host's disk needs no more than its check."""
        self.open(bundle_id)

    def open(self, bundle_id: str) -> Bundle:
        """Ready to fork from. What a fork needs at once is read at its first use since boot or since a change; the rest
        is left to `read`, for no fork shall wait for it.
        """
        with _readable(bundle_id):
            bundle = self._opened(bundle_id)
        self._note_use(bundle_id)
        return bundle

    def unread(self) -> tuple[str, ...]:
        """Those opened here whose files have not all been read as they are now."""
        return tuple(
            bundle_id
            for bundle_id, known in tuple(self._mounted.items())
            if self._is_unread(bundle_id, known)
        )

    def read(self, bundle_id: str) -> None:
        """Read every byte, with rests, so that forks have the processor and the disk meanwhile; the bundle is refused
        from then on if one has changed.
        """
        self._read(bundle_id, _REST_S)

    def refused(self) -> tuple[tuple[str, EnvironmentFault], ...]:
        """What is not forked from any more, and why; forks of what was mended since have nothing to fear."""
        found = ((entry.name, _load(entry)) for entry in sorted(self._refusals.iterdir()))
        return tuple(
            (name, refusal[1])
            for name, refusal in found
            if refusal is not None and refusal[0] == self._mark_now(name)
        )

    def mounted(self) -> tuple[str, ...]:
        """Those that can be forked from at once: here, and checked, by whichever process of this host; the one that was
        not used for longest first.
        """
        warm = (
            name
            for name in self.known()
            if (name in self._mounted or _is_marked(name, self._checked, self._used))
            and not (self._refusals / name).exists()
        )
        return tuple(sorted(warm, key=self._used_ns))

    def known(self) -> tuple[str, ...]:
        """Every bundle's folder, finished or not."""
        here = {entry.name for folder in (self._stored, self._staged) for entry in folder.iterdir()}
        return tuple(sorted(name for name in here if not name.startswith(".")))

    def evict(self, bundle_id: str) -> bool:
        """Whether it is not here any more: this host has the only copy, and keeps it."""
        return _plain(bundle_id) not in self.known()

    def release(self) -> None:
        """All stays on this host's disk."""

    def tidy(self) -> None:
        """Nothing is ever half here."""

    def delete(self, bundle_id: str) -> None:
        """Remove it, stored or staged. Machines that run on it keep its files open until they end."""
        self.forget(bundle_id)
        _remove(self._stored / bundle_id)
        _remove(self._staged / bundle_id)

    def forget(self, bundle_id: str) -> None:
        """All that is known of a bundle's bytes: they are not here any more, or come from elsewhere the next time."""
        name = _plain(bundle_id)
        self._mounted.pop(name, None)
        self._last_use_ns.pop(name, None)
        for marks in self._marks:
            (marks / name).unlink(missing_ok=True)

    def _opened(self, bundle_id: str) -> Bundle:
        directory = self._directory(bundle_id)
        known = self._mounted.get(bundle_id)
        if known is not None and known.bundle.directory == directory:
            mark = self._mark(directory)
            self._refuse_again(bundle_id, mark)
            if mark == known.mark:
                return known.bundle
        with self._mounting:
            return self._mount(bundle_id, directory).bundle

    def _note_use(self, bundle_id: str) -> None:
        """In memory at once, for the order of now; on the disk now and then, for the process that comes after."""
        now_ns, mark = time.time_ns(), self._used / bundle_id
        self._last_use_ns[bundle_id] = now_ns
        with contextlib.suppress(OSError):  # on a full disk the order suffers, and no fork
            if now_ns - _changed_ns(mark) >= _USED_EVERY_NS:
                mark.touch()

    def _used_ns(self, bundle_id: str) -> int:
        return max(self._last_use_ns.get(bundle_id, 0), _changed_ns(self._used / bundle_id))

    def _read(self, bundle_id: str, rest_s: float) -> None:
        directory = self._directory(bundle_id)
        with _readable(bundle_id), self._refusing(bundle_id, directory):
            mark = self._mark(directory)
            contents = manifest.read(directory)
            manifest.check_chunks(directory, contents, lambda: time.sleep(rest_s))
        (self._refusals / bundle_id).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # on a full disk it will be read once more
            (self._checked / bundle_id).write_text(mark)

    def _directory(self, bundle_id: str) -> Path:
        """The stored one; a folder on which a volume will be mounted is not there yet."""
        for folder in (self._stored, self._staged):
            directory = folder / _plain(bundle_id)
            if (directory / manifest.NAME).exists():
                return directory
        raise EnvironmentFault(
            FailureKind.SNAPSHOT_UNAVAILABLE, f"bundle {bundle_id} is not on this host"
        )

    def _mount(self, bundle_id: str, directory: Path) -> _Mounted:
        with self._refusing(bundle_id, directory):
            mark = self._mark(directory)
            self._refuse_again(bundle_id, mark)
            known = self._mounted.get(bundle_id)
            if known is not None and known.mark == mark and known.bundle.directory == directory:
                return known  # another thread was here first
            contents = manifest.read(directory)
            if not self._is_sound(bundle_id, mark):
                _check_first(directory, contents)
        mounted = _Mounted(contents.bundle(directory), mark)
        self._mounted[bundle_id] = mounted
        return mounted

    @contextlib.contextmanager
    def _refusing(self, bundle_id: str, directory: Path) -> Iterator[None]:
        """What is found corrupt inside is kept as such; on a full disk it will be found again."""
        try:
            yield
        except EnvironmentFault as fault:
            if fault.kind is FailureKind.SNAPSHOT_CORRUPT:
                (self._checked / bundle_id).unlink(missing_ok=True)
                told = {
                    "mark": self._mark(directory),
                    "message": fault.message,
                    "evidence": fault.evidence,
                }
                with contextlib.suppress(OSError):
                    (self._refusals / bundle_id).write_text(json.dumps(told))
            raise

    def _refuse_again(self, bundle_id: str, mark: str) -> None:
        refusal = _load(self._refusals / bundle_id)
        if refusal is not None and refusal[0] == mark:
            raise refusal[1]

    def _is_unread(self, bundle_id: str, known: _Mounted) -> bool:
        try:
            mark = self._mark(known.bundle.directory)
        except OSError:
            return True  # who reads it will say what is wrong
        if self._is_sound(bundle_id, mark):
            return False
        refusal = _load(self._refusals / bundle_id)
        return refusal is None or refusal[0] != mark

    def _is_sound(self, bundle_id: str, mark: str) -> bool:
        """All of it was read as it is now, or written a moment ago by who digested it."""
        return mark in (_text(self._checked / bundle_id), _text(self._watched / bundle_id))

    def _mark_now(self, bundle_id: str) -> str | None:
        """Of a bundle that may not be here, or be on its way out."""
        with contextlib.suppress(EnvironmentFault, OSError):
            return self._mark(self._directory(bundle_id))
        return None

    def _mark(self, directory: Path) -> str:
        """Changes whenever a file of the bundle is written, replaced or removed, and with this host's boot."""
        files = {}
        for entry in sorted(directory.glob("[!.]*")):
            stat = entry.stat()
            files[entry.name] = [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        return json.dumps({"boot_id": self._boot_id, "files": files})


@contextlib.contextmanager
def _readable(bundle_id: str) -> Iterator[None]:
    """Inside, a disk that does not give its bytes, as a volume's may at any time, is a fault of the environment."""
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(
            FailureKind.SNAPSHOT_UNAVAILABLE,
            f"bundle {bundle_id} cannot be read: {error}",
            bundle=bundle_id,
            reason="disk_failed",
        ) from error


def _check_first(directory: Path, contents: manifest.Manifest) -> None:
    """What a fork needs at once: what the first forks read, or else the start of each file."""
    manifest.check_sizes(directory, contents)
    known = working_set.read(directory, contents)
    if known is None:
        manifest.check_working_set(directory, contents)
    else:
        working_set.check(directory, known)


def _plain(name: str) -> str:
    if not name or Path(name).name != name or name.startswith("."):
        raise BadRequest("bad_bundle_id", f"{name!r} is no bundle's name")
    return name


def _is_marked(name: str, *marks: Path) -> bool:
    return any((folder / name).exists() for folder in marks)


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except FileNotFoundError:
        return None


def _changed_ns(file: Path) -> int:
    """When it was last touched; 0 for one that is not there."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _load(file: Path) -> tuple[str, EnvironmentFault] | None:
    """A refusal: the mark that it is about, and what was found. Half a one, of a crash, is none: it is found again."""
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
        told = json.loads(file.read_text())
        fault = EnvironmentFault(
            FailureKind.SNAPSHOT_CORRUPT, told["message"], **dict(told["evidence"])
        )
        return str(told["mark"]), fault
    return None


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
