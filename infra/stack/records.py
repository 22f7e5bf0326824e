"""What a stack writes down about itself, so that another process can find it, and end all of it after any crash."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from app.errors import Conflict, Unavailable
from infra.stack.process import Process

# What every process of a stack has in its environment, with the stack's id.
MARK = "PROMIGENCE_STACK"
# An `up` that waits for its parts, or a `down` that waits for tasks to end, takes no longer.
LOCK_WITHIN_S = 120.0
LOG_LIMIT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Places:
    """Where a stack keeps its own files. What is of a running stack goes when it stops; data stays."""

    directory: Path
    run_dir: Path
    # False: processes log where their parent does.
    log_files: bool = True

    @property
    def environment(self) -> Path:
        """For people and programs that use the stack: its URL, its key, Flower's URL."""
        return self.directory / "env"

    @property
    def scrapes(self) -> Path:
        """For a Prometheus of the operator's: where this stack's metrics are, as a configuration of its own."""
        return self.directory / "prometheus.yml"

    @property
    def metrics_token(self) -> Path:
        """What that Prometheus sends; it outlives the stack, as its configuration does."""
        return self.directory / "metrics.token"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def identity(self) -> Path:
        return self.directory / "stack.json"

    @property
    def processes(self) -> Path:
        return self.directory / "processes.json"

    @property
    def lock(self) -> Path:
        return self.directory / "lock"


@dataclass(frozen=True, slots=True)
class Identity:
    """A stack that was started here. Every process of it has `MARK=stack_id` in its environment."""

    stack_id: str
    supervisor: Process | None


def read_identity(places: Places) -> Identity | None:
    """None when no stack was started here, or the last one was stopped."""
    found = _read(places.identity)
    if found is None:
        return None
    supervisor = found.get("supervisor")
    return Identity(
        str(found["stack_id"]), Process(**supervisor) if isinstance(supervisor, dict) else None
    )


def write_identity(places: Places, identity: Identity) -> None:
    write_private(places.identity, json.dumps(asdict(identity)))


def read_processes(places: Places) -> dict[str, Process]:
    """The parts as their supervisor last wrote them down."""
    found = _read(places.processes) or {}
    return {name: Process(**fields) for name, fields in found.items() if isinstance(fields, dict)}


def write_processes(places: Places, processes: Mapping[str, Process]) -> None:
    fields = {name: asdict(process) for name, process in processes.items()}
    write_private(places.processes, json.dumps(fields))


def write_private(path: Path, text: str) -> None:
    """Replace a file whole, readable by its owner alone."""
    fresh = path.with_name(f"{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)


@contextmanager
def log_of(places: Places, name: str) -> Iterator[IO[bytes] | None]:
    """Where a process of this stack logs to, for its start; None: where we do ourselves."""
    if not places.log_files:
        yield None
        return
    path = places.logs / f"{name}.log"
    if path.exists() and path.stat().st_size > LOG_LIMIT_BYTES:
        path.replace(path.with_suffix(".log.1"))
    with path.open("ab") as out:
        yield out


def make_directories(places: Places) -> None:
    """Raises Unavailable when the runtime directory is somebody else's."""
    places.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if places.log_files:
        places.logs.mkdir(exist_ok=True, mode=0o700)
    make_runtime(places.run_dir)


def make_runtime(run_dir: Path) -> None:
    """Raises Unavailable when it is somebody else's."""
    # Each machine runs as a user of its own and has to pass through to its directory; listing it is nobody's.
    for directory in (run_dir.parent, run_dir):
        directory.mkdir(parents=True, exist_ok=True, mode=0o711)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise Unavailable(
                "runtime_dir_taken",
                f"{directory} belongs to user {found.st_uid}; set PROMIGENCE_RUN_DIR to a short path",
            )


def remove_running(places: Places) -> None:
    """Remove all that only a running stack has. Twice is safe."""
    for path in (places.environment, places.scrapes, places.processes, places.identity):
        path.unlink(missing_ok=True)
    shutil.rmtree(places.run_dir, ignore_errors=True)
    try:
        places.run_dir.parent.rmdir()
    except OSError:
        return  # other stacks use it, or it is gone


@contextmanager
def alone(places: Places) -> Iterator[None]:
    """One `up` or `down` at a time in a directory; another waits for it. Raises Conflict(stack_busy)."""
    places.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with places.lock.open("w") as lock:
        until = time.monotonic() + LOCK_WITHIN_S
        while not _locked(lock):
            if time.monotonic() > until:
                raise Conflict(
                    "stack_busy", f"another `up` or `down` is at work in {places.directory}"
                )
            time.sleep(0.1)
        yield


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(path: Path) -> dict[str, object] | None:
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None
