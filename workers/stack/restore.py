"""The end of a restore: an epoch begins, when nobody writes any more who remembers what was before."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from app.domain.deployment import seen_of
from app.errors import Conflict
from app.ports import Ports
from infra import wiring
from infra.epochs import CONTROL, EpochMemory
from infra.settings import load
from infra.stack.records import read_processes
from workers.command import needs_stack
from workers.noted import noted
from workers.residence import BEAT_S
from workers.stack.standing import gone_back
from workers.stack.supervise import places_of

# Two looks this far apart show whose heart beats.
LOOKS_APART_S = 2 * BEAT_S + 1.0
NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Restored:
    """The epoch that began, and the one before. `open_attempts` are those that the rows believe to run."""

    deployment_id: str
    epoch: int
    before: int
    why: str
    open_attempts: int

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def restored(directory: Path, *, copy: bool = False, force: bool = False) -> Restored:
    """Begin an epoch; with `copy` of a deployment of its own. A database of an earlier release is migrated first.

    Raises Conflict(control_plane_runs) naming who runs, Conflict(nothing_restored) where nothing shows that the
    database went back, unless it is forced; Unavailable.
    """
    settings = load(directory)
    needs_stack(directory)
    _refuse(_running_here(directory))
    wiring.migrate(settings)
    why = gone_back(settings, wiring.schema(settings)) or _said(copy=copy, force=force)
    with wiring.control(settings) as control:
        ports = control.ports
        _refuse(_running(ports))
        before = ports.deployments.now()
        with noted(ports, "deployment.restored", target=before.deployment_id):
            now = ports.deployments.begin_epoch(copy=copy)
        memory = EpochMemory(settings.dir, CONTROL)
        memory.write(seen_of(now, memory.read(), time.time_ns()))
        hosts = ports.hosts.list()
        count = sum(len(ports.attempts.held_by(host.host_id)) for host in hosts)
    return Restored(now.deployment_id, now.epoch, before.epoch, why, count)


def _refuse(running: tuple[str, ...]) -> None:
    if running:
        raise Conflict("control_plane_runs", f"stop first: {', '.join(running)}")


def _said(*, copy: bool, force: bool) -> str:
    if copy:
        return "it is a copy"
    if force:
        return "it was forced"
    raise Conflict(
        "nothing_restored",
        "neither this machine nor a host that is heard of remembers more than the database knows: every machine of the "
        "deployment would be ended for nothing. If no host could say so by now, give --force",
    )


def _running_here(directory: Path) -> tuple[str, ...]:
    """Those that a supervisor of this stack started, of whatever release."""
    parts = read_processes(places_of(directory))
    alive = (name for name in ("api", "billing") if name in parts and parts[name].alive())
    return tuple(f"{name} of this stack (process {parts[name].pid})" for name in alive)


def _running(ports: Ports) -> tuple[str, ...]:
    """Those whose heartbeat moves. Old ones are in the backup too, and say nothing."""
    first = {each.process_id: each.heartbeat_age_ns for each in ports.processes.all()}
    began_ns = time.monotonic_ns()
    time.sleep(LOOKS_APART_S)
    passed_ns = time.monotonic_ns() - began_ns
    return tuple(
        str(each)
        for each in ports.processes.all()
        if each.heartbeat_age_ns < first.get(each.process_id, NS * 3600) + passed_ns // 2
    )
