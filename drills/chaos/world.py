"""Simulated machines of one host, and their clock, as an episode watches them."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from app.domain.machine import Command, Death, DeathCause
from drills.chaos.chronicle import Chronicle, What
from infra.fakes.clock import ManualClock
from infra.fakes.world import World


class Watcher(Protocol):
    """Who is told what becomes of machines."""

    chronicle: Chronicle

    def note(self, subject: str, what: What, where: str = "", detail: str = "") -> None:
        """An entry of the chronicle, now."""
        ...

    def heard(self, name: str) -> None:
        """Something ended on this machine, and whoever holds its channels hears it."""
        ...


class HostClock(ManualClock):
    """The clock of one host: it began at another time than its neighbours', and begins anew when the host does."""

    def __init__(self, base: ManualClock, number: int, boot: int) -> None:
        super().__init__(f"00000000-0000-4000-8000-{number:06}{boot:06}")
        self._base = base
        self._began_ns = base.boot_ns() - (number + boot + 1) * 7_000_000_000

    def boot_ns(self) -> int:
        return self._base.boot_ns() - self._began_ns

    def wall_ns(self) -> int:
        return self._base.wall_ns()

    def advance(self, seconds: float) -> None:
        self._base.advance(seconds)


class WatchedWorld(World):
    """Machines of one host that tell the chronicle what becomes of them, and the present worker what it can hear."""

    def __init__(self, watcher: Watcher, clock: HostClock, starts: Counter[str]) -> None:
        super().__init__(clock)
        self.starts = starts
        self._watcher = watcher

    def tell(self, name: str, where: str, what: str) -> None:
        super().tell(name, where, what)
        self._watcher.note(name, What.BEFELL, where, what)
        self._watcher.chronicle.met[f"{where}: {what.partition(' ')[0]}"] += 1

    def run(self, name: str, exec_id: str, command: Command) -> None:
        starts = self.starts[exec_id]
        super().run(name, exec_id, command)
        if self.starts[exec_id] > starts:
            self._watcher.note(name, What.STARTED, exec_id)

    def ended(self, name: str, exec_id: str) -> None:
        job = self.boxes[name].jobs[exec_id]
        self._watcher.note(name, What.ENDED, exec_id, "timed out" if job.timed_out else "")
        if not self.boxes[name].hung:
            self._hear(name)

    def die(self, name: str, cause: DeathCause, signal: int | None = None) -> Death | None:
        box = self.boxes.get(name)
        lived, heard = box is not None and box.death is None, box is not None and box.attached
        death = super().die(name, cause, signal)
        if lived and cause is not DeathCause.ASKED:
            self._watcher.note(name, What.DIED, cause.value)
            if heard:
                self._hear(name)
        return death

    def _hear(self, name: str) -> None:
        if self.boxes[name].attached:
            self._watcher.heard(name)
