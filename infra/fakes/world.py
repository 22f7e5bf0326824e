"""The machines of a fake host and what befalls them: state that FakeMachines and FakeGuest share."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from app.domain.machine import (
    Command,
    CommandEnd,
    Death,
    DeathCause,
    Handle,
    Identity,
    MonitorEvent,
    Shape,
)
from app.errors import EnvironmentFault, FailureKind
from app.ports import Clock, GuestEvents
from infra.fakes.script import Fate, Script, parse

TICK_S = 0.02


@dataclass(slots=True)
class Job:
    """A command in a fake machine: when it ends is known from its start."""

    script: Script
    began_ns: int
    ends_ns: int
    timed_out: bool
    told: bool = False
    killed: bool = False


@dataclass(slots=True)
class Box:
    """One fake machine."""

    handle: Handle
    shape: Shape
    boot_id: str
    disk_id: str
    deadline_ns: int
    identity: Identity | None = None
    death: Death | None = None
    attached: bool = False
    hung: bool = False
    allowed: tuple[str, ...] = ()
    jobs: dict[str, Job] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    events: list[MonitorEvent] = field(default_factory=list)
    egress: list[dict[str, str]] = field(default_factory=list)


class World:
    """All fake machines of one host. `fault` plants a failure; `starts` counts side effects outside the guests."""

    def __init__(self, clock: Clock, events: GuestEvents | None = None) -> None:
        self.clock = clock
        self.events = events
        self.boxes: dict[str, Box] = {}
        self.starts: Counter[str] = Counter()
        self.samples: dict[str, str] = {}
        self.lock = threading.RLock()
        self._faults: dict[str, list[EnvironmentFault]] = {}

    def fault(self, step: str, kind: FailureKind, times: int = 1, **evidence: object) -> None:
        """Let the next `times` calls of a step fail: boot, freeze, restore, attach, wake, open, probe, start, end."""
        planted = EnvironmentFault(kind, f"planted in {step}", **evidence)
        self._faults.setdefault(step, []).extend([planted] * times)

    def meet(self, step: str) -> None:
        """Raise what was planted for this step."""
        planted = self._faults.get(step)
        if planted:
            raise planted.pop(0)

    def box(self, name: str) -> Box:
        """A machine that lives and answers. Raises EnvironmentFault(guest_lost, guest_hung)."""
        box = self.boxes.get(name)
        if box is None or box.death is not None:
            raise EnvironmentFault(FailureKind.GUEST_LOST, f"machine {name} is gone")
        if box.hung:
            raise EnvironmentFault(FailureKind.GUEST_HUNG, f"machine {name} does not answer")
        return box

    def die(self, name: str, cause: DeathCause, signal: int | None = None) -> Death | None:
        """End a machine, once; whoever listens on its channel hears it."""
        with self.lock:
            box = self.boxes.get(name)
            if box is None:
                return None
            if box.death is None:
                box.death = Death(cause, None, signal, self.clock.boot_ns())
                if cause is DeathCause.PANICKED:
                    self.note(box, "GUEST_PANICKED")
                if cause is DeathCause.SHUTDOWN:
                    self.note(box, "SHUTDOWN")
                heard = box.attached
            else:
                heard = False
        if heard and self.events is not None and cause is not DeathCause.ASKED:
            self.events.lost(name)
        return box.death

    def run(self, name: str, exec_id: str, command: Command) -> None:
        """Start a command; the same id starts once."""
        box = self.box(name)
        with self.lock:
            if exec_id in box.jobs:
                return
            self.starts[exec_id] += 1
            script = parse(command.argv, dict(command.env))
            now = self.clock.boot_ns()
            timed_out = script.duration_ns > command.timeout_ns
            ends = now + min(script.duration_ns, command.timeout_ns)
            box.jobs[exec_id] = Job(script, now, ends, timed_out)
        self.pump()

    def end_of(self, name: str, exec_id: str) -> CommandEnd | None:
        """How a command ended; None while it runs."""
        job = self.box(name).jobs.get(exec_id)
        if job is None:
            raise EnvironmentFault(FailureKind.EXEC_NOT_STARTED, f"{exec_id} is not known here")
        if self.clock.boot_ns() < job.ends_ns or job.script.fate is Fate.HANG:
            return None
        stopped = job.timed_out or job.killed
        return CommandEnd(
            exit_code=None if stopped else job.script.exit_code,
            signal=9 if stopped else job.script.signal,
            timed_out=job.timed_out,
            duration_ns=job.ends_ns - job.began_ns,
            stdout=job.script.stdout.encode(),
            stderr=job.script.stderr.encode(),
        )

    def pump(self) -> None:
        """Let happen what is due: commands end, machines die of them or of their deadline."""
        for name, box in list(self.boxes.items()):
            if box.death is None:
                self._pump_box(name, box)

    def _pump_box(self, name: str, box: Box) -> None:
        now = self.clock.boot_ns()
        if now >= box.deadline_ns:
            self.die(name, DeathCause.DEADLINE, 9)
            return
        for exec_id, job in list(box.jobs.items()):
            if job.told or now < job.ends_ns:
                continue
            job.told = True
            if not job.timed_out and _befall(self, name, box, job.script.fate):
                return
            if self.events is not None and box.attached and not box.hung:
                self.events.ended(name, exec_id)

    def note(self, box: Box, name: str, **data: object) -> None:
        """Something that the machine's monitor says."""
        box.events.append(MonitorEvent(name, data, self.clock.boot_ns()))


def _befall(world: World, name: str, box: Box, fate: Fate) -> bool:
    deaths = {
        Fate.CRASH: (DeathCause.SIGNAL, 9),
        Fate.PANIC: (DeathCause.PANICKED, None),
        Fate.POWEROFF: (DeathCause.SHUTDOWN, None),
    }
    if fate is Fate.HANG:
        box.hung = True
    elif fate is Fate.DISKFULL:
        world.note(box, "BLOCK_IO_ERROR", nospace=True)
        world.note(box, "STOP")
        box.hung = True
    elif fate in deaths:
        world.die(name, *deaths[fate])
    return fate is not Fate.NONE
