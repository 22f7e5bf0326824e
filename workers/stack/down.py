"""The end of a stack, whatever state it is in: processes, machines, and the files of a running stack."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

from app.errors import PromigenceError
from app.flow import recover
from app.ids import new_id
from infra import wiring
from infra.settings import SETTINGS_FILE, Settings, load
from infra.stack.process import carrying, stop
from infra.stack.records import (
    MARK,
    Identity,
    Places,
    alone,
    read_identity,
    read_processes,
    remove_running,
)
from infra.stack.supervisor import stop_in_order
from workers.stack.supervise import parts_of, places_of
from workers.watch import Deaf

# The supervisor's own patience with its parts, and some.
SUPERVISOR_PATIENCE_S = 45.0
SWEEPS = 3
DATA = (
    *(
        "promigence.db",
        "promigence.db-wal",
        "promigence.db-shm",
        "key.secret",
        "metrics.token",
        SETTINGS_FILE,
    ),
    *("deployment.control.json", "deployment.host.json"),
    *("blobs", "bundles", "spool", "machines", "logs"),
)

Say = Callable[[str], None]
log = structlog.get_logger(__name__)


def down(directory: Path, say: Say, *, wipe: bool = False) -> None:
    """Stop the stack of this directory, whatever state it is in. Twice is safe. Raises Conflict(stack_busy)."""
    places = places_of(directory)
    if not places.directory.is_dir():
        return
    with alone(places), _undisturbed():
        bring_down(places, say)
        if wipe:
            _wipe(places)


def bring_down(places: Places, say: Say) -> None:
    """Supervisor, parts, machines, whatever else carries the stack's mark; then the files of a running stack."""
    identity = read_identity(places)
    with _undisturbed():
        if identity is not None:
            _stop_processes(places, identity)
            say("stopped")
        remove_running(places)


def _stop_processes(places: Places, identity: Identity) -> None:
    settings = load(places.directory)
    if identity.supervisor is not None:
        stop([identity.supervisor], patience_s=SUPERVISOR_PATIENCE_S)
    # What outlived it, or was left by one that was killed.
    stop_in_order(read_processes(places), parts_of(settings))
    if "worker" in settings.parts:
        _end_machines(settings)
    _sweep(identity.stack_id)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C does not leave half of a stack behind; all that is done here ends by itself, and soon."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _end_machines(settings: Settings) -> None:
    """End every machine of this host, known to a row or not; the rows say that their host was taken down."""
    with _said("machines_not_ended"), wiring.host(settings, new_id("claim"), Deaf()) as host:
        with _said("rows_not_settled"), wiring.control(settings) as control:
            recover.leave(control.ports, host)
        for handle in host.machines.live():
            host.machines.kill(handle.name)
        for name in host.machines.known():
            host.machines.forget(name)
        with _said("bundles_not_released"):
            host.bundles.release()


@contextlib.contextmanager
def _said(event: str) -> Iterator[None]:
    """Database or hypervisor away: each machine's keeper still ends it when its lease does, and the meters close."""
    try:
        yield
    except PromigenceError as error:
        log.error(event, code=error.code, error=error.message)


def _sweep(stack_id: str) -> None:
    """End what was started but never written down, such as a part whose supervisor was killed at that very moment."""
    for _ in range(SWEEPS):
        left = carrying(f"{MARK}={stack_id}")
        if not left:
            return
        stop(left, patience_s=2.0)


def _wipe(places: Places) -> None:
    for name in DATA:
        path = places.directory / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
