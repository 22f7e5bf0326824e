"""The way from one release to the next under running work: the database first, then each process in its turn.

Nothing is remembered between two calls but what rows and processes tell by themselves, so that an upgrade that was
interrupted goes on when it is asked for again, and one that is over finds nothing to do.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.domain.worker import Worker
from app.errors import Conflict, NotFound, Unavailable
from app.ports import Ports
from infra import wiring
from infra.release import release
from infra.settings import Settings, load
from infra.stack.process import Process, stop
from infra.stack.records import Identity, Places, read_identity, read_processes
from infra.store.migrate import Schema, known_revision, refuse_unknown
from workers.command import needs_stack
from workers.noted import noted
from workers.probes import wait_until_well
from workers.stack.standing import refuse_gone_back
from workers.stack.status import asking, written_key
from workers.stack.supervise import parts_of, places_of

# In this order: who is asked for places is there whenever it is asked.
CONTROL_PLANE = ("billing", "api", "flower")
MIGRATE_TRIES = 5
ENDS_WITHIN_S = 20.0
READY_WITHIN_S = 90.0
LOOK_S = 0.5

# Told of each step as it is done: its word, and what it is about.
Say = Callable[[str, dict[str, object]], None]


@dataclass(frozen=True, slots=True)
class PartRelease:
    """A process of this stack; `release` is None where it tells none (Flower, and whatever is older than that)."""

    name: str
    pid: int
    release: str | None
    current: bool


@dataclass(frozen=True, slots=True)
class Outlook:
    """What an upgrade would do here. `expand` and `contract` are migrations, `parts` all processes of this stack."""

    release: str
    revision: str
    migrates: bool
    expand: tuple[str, ...]
    contract: tuple[str, ...]
    parts: tuple[PartRelease, ...]

    @property
    def done(self) -> bool:
        """Whether nothing is left to do but what waits for others."""
        return not self.expand and all(part.current for part in self.parts)


def check(directory: Path) -> Outlook:
    """Look, and change nothing. Raises what `upgrade` would refuse to begin with: NotFound(no_stack),
    Conflict(stack_without_supervisor, schema_behind, database_went_back), PromigenceError(unknown_schema), Unavailable.
    """
    needs_stack(directory)
    settings = load(directory)
    places = places_of(directory)
    identity = read_identity(places)
    found = wiring.schema(settings)
    refuse_unknown(found)
    migrates = "api" in settings.parts or "billing" in settings.parts
    if not migrates and found.expand:
        raise Conflict(
            "schema_behind",
            "the database is not upgraded yet: `promigence-server upgrade` on the control plane comes first",
        )
    refuse_gone_back(settings, found)
    if identity is not None and not _supervised(identity):
        raise Conflict(
            "stack_without_supervisor",
            "nothing would start its parts again: `promigence-server down`, then `up`, is its upgrade",
        )
    parts = () if identity is None else _parts(settings, places, found)
    contract = found.contract if migrates else ()
    return Outlook(release(), known_revision(), migrates, found.expand, contract, parts)


def upgrade(directory: Path, say: Say, *, wait: bool = True, everything: bool = False) -> Outlook:
    """Migrate, start every part of this stack anew that is of another release, and let the workers of this host drain;
    how it stands then. With `everything` parts of this release are started anew too.

    Without `wait` it returns when a new worker is there, while the old one goes on with what it holds. Raises as
    `check` does, Conflict(upgrade_runs), Unavailable(part_not_ready).
    """
    settings, places = load(directory), places_of(directory)
    with _alone(settings.dir):
        before = check(directory)
        if before.migrates:
            _migrate(settings, before, say)
        with _in_the_log(settings, before):
            named = {part.name for part in before.parts if everything or not part.current}
            for name in CONTROL_PLANE:
                if name in named:
                    _restart(settings, places, name, say)
            if "worker" in named or any(name.startswith("worker-") for name in named):
                _replace_worker(settings, say, wait=wait)
            if before.migrates:
                _contract(settings, say)
        return check(directory)


@contextmanager
def _in_the_log(settings: Settings, before: Outlook) -> Iterator[None]:
    """Once the database has a log that this release can write. A host has no way to it."""
    if not before.migrates:
        yield
        return
    with (
        wiring.control(settings) as control,
        noted(control.ports, "upgrade", target=before.release),
    ):
        yield


def _migrate(settings: Settings, before: Outlook, say: Say) -> None:
    """Expand. Work goes on meanwhile and may hold what a migration needs: all of it is undone then, and tried again."""
    if not before.expand:
        say("migrated", {"revisions": []})
        return
    for turn in range(MIGRATE_TRIES):
        try:
            wiring.migrate(settings)
            break
        except Unavailable as busy:
            if busy.code != "database_busy" or turn == MIGRATE_TRIES - 1:
                raise
            say("migration_waits", {"why": busy.message})
            time.sleep(LOOK_S)
    say("migrated", {"revisions": list(before.expand)})


def _contract(settings: Settings, say: Say) -> None:
    try:
        done = wiring.contract(settings)
    except Conflict as needed:
        say("contraction_waits", {"why": needed.message})
        return
    if done:
        say("contracted", {"revisions": list(done)})


def _restart(settings: Settings, places: Places, name: str, say: Say) -> None:
    """End a part; its supervisor starts it anew, from what is installed now."""
    before = read_processes(places).get(name)
    began_s = time.monotonic()
    if before is not None:
        stop([before], patience_s=ENDS_WITHIN_S)
    after = _follower(places, name, before)
    with asking(settings, written_key(places)) as probes:
        ailing = wait_until_well(
            {name: probes[name]}, READY_WITHIN_S, lambda: not after.alive(), lambda _name: None
        )
    if ailing:
        raise Unavailable("part_not_ready", f"{name}: {ailing[name]}; see {places.logs}")
    seconds = round(time.monotonic() - began_s, 1)
    say("restarted", {"part": name, "pid": after.pid, "seconds": seconds})


def _follower(places: Places, name: str, before: Process | None) -> Process:
    until = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < until:
        found = read_processes(places).get(name)
        if found is not None and found != before and found.alive():
            return found
        time.sleep(0.1)
    raise Unavailable("part_not_ready", f"{name} was not started again; see {places.logs}")


def _replace_worker(settings: Settings, say: Say, *, wait: bool) -> None:
    """Ask the workers of this host to drain, once; the next one is there when they have given up its queues."""
    host_id = settings.host_id
    with wiring.control(settings) as control:
        ports = control.ports
        if not any(_is_current(each) or each.draining for each in ports.workers.on(host_id)):
            ports.workers.drain(host_id)
            say("worker_drains", {"host": host_id})
        _await_new_worker(ports, host_id, say)
        if wait:
            _await_drained(ports, host_id, say)


def _await_new_worker(ports: Ports, host_id: str, say: Say) -> None:
    until = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < until:
        new = [each for each in ports.workers.on(host_id) if _is_current(each)]
        if new:
            say("worker_started", {"pid": new[-1].pid, "release": new[-1].version})
            return
        time.sleep(LOOK_S)
    raise Unavailable("part_not_ready", f"no worker of release {release()} began on {host_id}")


def _await_drained(ports: Ports, host_id: str, say: Say) -> None:
    """As long as leases last, and no longer."""
    before: dict[str, int] | None = None
    while left := _left(ports, host_id):
        if left != before:
            say("draining", {"machines": left})
        before = left
        time.sleep(LOOK_S)
    say("drained", {"machines": {}})


def _left(ports: Ports, host_id: str) -> dict[str, int]:
    """Machines that each worker still holds that is to go, by its process number."""
    held = Counter(each.attempt.claim for each in ports.attempts.held_by(host_id))
    return {str(each.pid): held[each.claim] for each in ports.workers.on(host_id) if each.draining}


def _parts(settings: Settings, places: Places, found: Schema) -> tuple[PartRelease, ...]:
    """By what each has written of itself; before the database knows of releases, they are of one that told none."""
    running = {name: each for name, each in read_processes(places).items() if each.alive()}
    told = {} if found.expand else _told(settings)
    named = [part.name for part in parts_of(settings) if not part.foundation]
    named += [name for name in running if name.startswith("worker-")]
    shown = []
    for name in (name for name in named if name in running):
        pid = running[name].pid
        word, current = told.get(pid, (None, False))
        shown.append(PartRelease(name, pid, word, current))
    return tuple(with_flower(part, shown, running) for part in shown)


def with_flower(
    part: PartRelease, shown: list[PartRelease], running: dict[str, Process]
) -> PartRelease:
    """It has no row: it is of this release if it was started after an API or a billing worker that is."""
    if part.name != "flower":
        return part
    others = [each for each in shown if each.name in ("api", "billing")]
    began = running["flower"].started_ticks
    current = all(each.current and running[each.name].started_ticks <= began for each in others)
    return PartRelease(part.name, part.pid, None, current)


def _told(settings: Settings) -> dict[int, tuple[str, bool]]:
    """Release, and whether it is this one, by the number of each process of this machine."""
    with wiring.control(settings) as control:
        here = socket.gethostname()
        processes = [each for each in control.ports.processes.all() if each.machine == here]
        workers = control.ports.workers.on(settings.host_id)
    of_control = {
        each.pid: (each.release, _is_ours(each.release, each.revision)) for each in processes
    }
    return of_control | {each.pid: (each.version, _is_current(each)) for each in workers}


def _is_current(worker: Worker) -> bool:
    return _is_ours(worker.version, worker.revision)


def _is_ours(told: str, revision: str | None) -> bool:
    return (told, revision) == (release(), known_revision())


def _supervised(identity: Identity) -> bool:
    return identity.supervisor is not None and identity.supervisor.alive()


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One upgrade at a time in a directory, by a lock on itself. Raises Conflict(upgrade_runs), NotFound(no_stack)."""
    try:
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError as missing:
        raise NotFound("no_stack", f"there is no stack in {directory}") from missing
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Conflict("upgrade_runs", "another upgrade of this stack is at work") from None
    finally:
        os.close(lock)
