"""The machines of a fake host and what befalls them: state that FakeMachines and FakeGuest share."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from app.domain.attribution import Vitals
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

T = TypeVar("T")


@dataclass(slots=True)
class Job:
    """A command in a fake machine: when it ends is known from its start."""

    script: Script
    began_ns: int
    ends_ns: int
    timed_out: bool
    limit_ns: int
    grades: bool = False
    told: bool = False
    killed: bool = False

    def delay(self, stalled_ns: int) -> None:
        """It stood still for a while, and its limit did not."""
        late_ns, last_ns = self.ends_ns + stalled_ns, self.began_ns + self.limit_ns
        self.ends_ns, self.timed_out = min(late_ns, last_ns), late_ns > last_ns


@dataclass(frozen=True, slots=True)
class Befallen:
    """What a machine met that was planted, or done to it from outside: where, what, and when."""

    name: str
    where: str
    what: str
    boot_ns: int


@dataclass(frozen=True, slots=True)
class _Planted:
    fault: EnvironmentFault
    after: bool


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
    console: str = ""
    stops: int = 0
    stopped_ns: int = 0
    stopped_since_boot_ns: int | None = None
    starved_ns: int = 0
    last: Vitals | None = None
    marks: dict[str, Vitals] = field(default_factory=dict)
    egress: list[dict[str, str]] = field(default_factory=list)


class World:
    """All fake machines of one host, and what befalls them.

    `fault`, `lie` and `spoil` plant what the next machine to come there meets; `kill_from_outside`, `hang`, `stall`,
    `fill_disk` and `lose_egress` are done to one that runs. `befell` tells what was met, for whoever judges; `starts`
    counts side effects outside the guests.
    """

    def __init__(self, clock: Clock, events: GuestEvents | None = None) -> None:
        self.clock = clock
        self.events = events
        self.boxes: dict[str, Box] = {}
        self.starts: Counter[str] = Counter()
        self.samples: dict[str, str] = {}
        self.befell: list[Befallen] = []
        self.lock = threading.RLock()
        self._faults: dict[str, list[_Planted]] = {}
        self._lies: dict[str, list[dict[str, Any]]] = {}
        self._spoilt: dict[str, list[str]] = {}

    def fault(
        self,
        step: str,
        kind: FailureKind,
        times: int = 1,
        *,
        after: bool = False,
        **evidence: object,
    ) -> None:
        """Let the next `times` calls of a step fail: boot, freeze, restore, attach, wake, open, probe, start, end.

        `after`: what the step was to do is done, and its answer lost.
        """
        planted = EnvironmentFault(kind, f"planted in {step}", **evidence)
        self._faults.setdefault(step, []).extend([_Planted(planted, after)] * times)

    def planted(self, step: str) -> int:
        """How many calls of a step are still to fail."""
        return len(self._faults.get(step, ()))

    def lie(self, step: str, **answers: object) -> None:
        """Let the next answer of a step (wake, probe) differ in these fields."""
        self._lies.setdefault(step, []).append(answers)

    def spoil(self, purpose: str, script: str) -> None:
        """Let the next command that starts and whose id begins with `purpose` run this script in place of its own."""
        self._spoilt.setdefault(purpose, []).append(script)

    def clear(self) -> None:
        """Forget what was planted and not met."""
        for planted in (self._faults, self._lies, self._spoilt):
            planted.clear()

    @contextmanager
    def step(self, step: str, name: str) -> Iterator[None]:
        """Around what a step does to a machine: raises what was planted for it."""
        self._meet(step, name, after=False)
        yield
        self._meet(step, name, after=True)

    def answer(self, step: str, name: str, sound: T) -> T:
        """What a machine answers in a step: the sound answer, or a planted lie."""
        lies = self._lies.get(step)
        if not lies:
            return sound
        told = lies.pop(0)
        self.tell(name, step, f"lie {', '.join(sorted(told))}")
        lie: T = replace(sound, **told)  # type: ignore[type-var]
        return lie

    def tell(self, name: str, where: str, what: str) -> None:
        """Note what befell a machine."""
        self.befell.append(Befallen(name, where, what, self.clock.boot_ns()))

    def _meet(self, step: str, name: str, *, after: bool) -> None:
        planted, box = self._faults.get(step), self.boxes.get(name)
        if not planted or planted[0].after is not after:
            return
        if box is not None and box.death is not None:
            return  # what is gone says so itself; the fault is the next one's
        fault = planted.pop(0).fault
        self.tell(name, step, fault.kind.value)
        raise fault

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
            script = self._script(name, exec_id, command)
            now = self.clock.boot_ns()
            timed_out = script.duration_ns > command.timeout_ns
            ends = now + min(script.duration_ns, command.timeout_ns)
            grades = command.grades is not None
            box.jobs[exec_id] = Job(script, now, ends, timed_out, command.timeout_ns, grades)
        self.pump()

    def _script(self, name: str, exec_id: str, command: Command) -> Script:
        for purpose, scripts in self._spoilt.items():
            if scripts and exec_id.startswith(purpose):
                text = scripts.pop(0)
                self.tell(name, purpose, f"spoilt {text}")
                return parse(("/bin/sh", "-c", f"sim: {text}"), {})
        return parse(command.argv, dict(command.env))

    def end_of(self, name: str, exec_id: str) -> CommandEnd | None:
        """How a command ended; None while it runs."""
        self._pump_box(
            name, self.box(name)
        )  # what it does to its machine comes before anybody reads its end
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
            victim_elsewhere=job.script.fate is Fate.VICTIM,
        )

    def result_of(self, name: str, exec_id: str) -> bytes | None:
        """The result file of a command that was started as a grade."""
        job = self.box(name).jobs.get(exec_id)
        if job is None or not job.grades or job.script.result is None:
            return None
        return job.script.result.encode()

    def kill_from_outside(self, name: str, cause: DeathCause, signal: int | None = None) -> None:
        """A machine that lives ends, and nobody of ours asked for it."""
        box = self.boxes.get(name)
        if box is None or box.death is not None:
            return
        self.tell(name, "machine", cause.value)
        self.die(name, cause, signal)

    def hang(self, name: str) -> None:
        """A machine lives on and answers nothing more."""
        self.boxes[name].hung = True
        self.tell(name, "machine", "hang")

    def freeze(self, name: str) -> None:
        """A machine's process is stopped from outside, and stays so."""
        box = self.boxes[name]
        box.hung, box.stops, box.stopped_since_boot_ns = True, box.stops + 1, self.clock.boot_ns()
        self.tell(name, "machine", "freeze")

    def stall(self, name: str, seconds: float) -> None:
        """A machine's process was stopped from outside for so long; the limits of its commands ran on meanwhile."""
        box, stalled_ns, now = self.boxes[name], int(seconds * 1e9), self.clock.boot_ns()
        box.stops, box.stopped_ns = box.stops + 1, box.stopped_ns + stalled_ns
        for job in box.jobs.values():
            if job.ends_ns > now:
                job.delay(stalled_ns)
        self.tell(name, "machine", "stall")

    def fill_disk(self, name: str) -> None:
        """The host has no room for what a machine writes: it stands still."""
        box = self.boxes[name]
        self.note(box, "BLOCK_IO_ERROR", nospace=True)
        self.note(box, "STOP")
        box.hung = True
        self.tell(name, "machine", "disk full")

    def lose_egress(self, name: str, target: str, what: str) -> None:
        """A target that a machine may reach was refused to it, reset, or did not answer."""
        now_ns = str(self.clock.boot_ns())
        at = {"at": str(self.clock.wall_ns()), "since_boot_ns": now_ns, "at_boot_ns": now_ns}
        self.boxes[name].egress.append({"target": target, "what": what, **at})
        self.tell(name, "egress", what)

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
        if box.hung:
            return  # nothing in it goes on
        for exec_id, job in list(box.jobs.items()):
            if job.told or now < job.ends_ns:
                continue
            job.told = True
            if not job.timed_out and _befall(self, name, box, job.script.fate):
                return
            self.ended(name, exec_id)

    def ended(self, name: str, exec_id: str) -> None:
        """A command of a machine that lives ended; who listens on the machine's channel hears it."""
        box = self.boxes[name]
        if self.events is not None and box.attached and not box.hung:
            self.events.ended(name, exec_id)

    def go_down(self) -> None:
        """The host loses power: nothing is left of its machines, nor of what was known of those that had ended."""
        for name, box in list(self.boxes.items()):
            self.tell(name, "host", "down" if box.death is None else "down after its end")
            del self.boxes[name]

    def note(self, box: Box, name: str, **data: object) -> None:
        """Something that the machine's monitor says."""
        box.events.append(MonitorEvent(name, data, self.clock.boot_ns()))


def _befall(world: World, name: str, box: Box, fate: Fate) -> bool:
    deaths = {
        Fate.CRASH: (DeathCause.SIGNAL, 6),
        Fate.PANIC: (DeathCause.PANICKED, None),
        Fate.OOM: (DeathCause.PANICKED, None),
        Fate.HOSTOOM: (DeathCause.OUT_OF_MEMORY, 9),
        Fate.POWEROFF: (DeathCause.SHUTDOWN, None),
    }
    if fate is Fate.OOM:
        box.console = "Kernel panic - not syncing: System is deadlocked on memory\n"
    if fate is Fate.VICTIM:
        return False
    if fate is Fate.HANG:
        box.hung = True
    elif fate is Fate.DISKFULL:
        world.note(box, "BLOCK_IO_ERROR", nospace=True)
        world.note(box, "STOP")
        box.hung = True
    elif fate in deaths:
        world.die(name, *deaths[fate])
    return fate is not Fate.NONE
