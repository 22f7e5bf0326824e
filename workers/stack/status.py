"""What `status` and `machines` show: every part asked now, every machine that lives."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.domain.run import Claimed
from app.ids import new_id
from infra import wiring
from infra.clock import HostClock
from infra.queue import CeleryBells
from infra.settings import Settings, load
from infra.stack.parts import Part
from infra.stack.process import Process
from infra.stack.records import Places, read_identity, read_processes
from workers.probes import Asker, Probe
from workers.stack.supervise import parts_of, places_of
from workers.watch import Deaf


@dataclass(frozen=True, slots=True)
class PartStatus:
    """A part as `status` shows it; `detail` says what it lacks."""

    name: str
    pid: int | None
    ready: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """A machine that lives. A simulated one has the process of the worker that simulates it."""

    fork_id: str
    run_id: str
    pid: int
    lease_left_seconds: float


def status(directory: Path) -> tuple[PartStatus, ...]:
    """Every part, each asked now. Empty when no stack was started here."""
    places = places_of(directory)
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
    with asking(settings, written_key(places)) as probes:
        found += [
            _part_status(part, running.get(part.name), probes[part.name])
            for part in parts_of(settings)
        ]
    named = {part.name for part in found}
    found += [
        _leaving(name, each) for name, each in running.items() if name not in named and each.alive()
    ]
    return tuple(found)


def machines(directory: Path) -> tuple[MachineStatus, ...]:
    """The machines of this host that live now and that a row knows."""
    settings = load(directory)
    clock = HostClock()
    if read_identity(places_of(directory)) is None:
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


@contextlib.contextmanager
def asking(settings: Settings, api_key: str) -> Iterator[dict[str, Probe]]:
    """The probes of this stack's parts, by name."""
    bells = CeleryBells(settings.broker_url, at_once=1)
    try:
        probes = Asker(settings, api_key, bells, HostClock()).probes()
        names = [part.name for part in parts_of(settings)]
        yield {name: probes[name] for name in names}
    finally:
        bells.close()


def _part_status(part: Part, process: Process | None, probe: Probe) -> PartStatus:
    if process is None or not process.alive():
        return PartStatus(part.name, None, False, "not running")
    complaint = probe()
    return PartStatus(part.name, process.pid, complaint is None, complaint or "")


def _leaving(name: str, process: Process) -> PartStatus:
    """A worker that drains beside the one that follows it."""
    return PartStatus(name, process.pid, True, "drains")


def _machine_pids(settings: Settings, held: tuple[Claimed, ...]) -> dict[str, int]:
    """Process ids by attempt id, of those that live."""
    if settings.machines == "fake":
        worker = read_processes(places_of(settings.dir)).get("worker")
        if worker is None or not worker.alive():
            return {}
        return {each.attempt.attempt_id: worker.pid for each in held}
    with wiring.host(settings, new_id("claim"), Deaf()) as host:
        return {handle.name: handle.pid for handle in host.machines.live()}


def written_key(places: Places) -> str:
    """The API key in the stack's environment file; empty when there is none yet."""
    try:
        lines = places.environment.read_text().splitlines()
    except FileNotFoundError:
        return ""
    found = dict(line.partition("=")[::2] for line in lines)
    return "".join(shlex.split(found.get("PROMIGENCE_API_KEY", "")))
