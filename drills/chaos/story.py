"""From the chronicle of a machine to its story: what befell it, and how far its fork had come by then."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.domain.run import RunSpec
from drills.chaos.chronicle import Chronicle, Entry, What
from drills.chaos.oracle import STALLED, STALLED_LATE, Fact, Story, When
from drills.chaos.process import JUST_S

# How exactly a host can say when a command of a guest began and ended.
CLOCK_S = 6.0


def story_of(chronicle: Chronicle, name: str, spec: RunSpec) -> Story:
    """A machine's story, from the entries about it."""
    told = _Telling(f"task_{name}", f"grade_{name}" if spec.grade else f"task_{name}")
    for entry in chronicle.by_subject[name]:
        told.hear(entry)
    return Story(tuple(told.facts), told.reached, told.timed_out)


@dataclass(slots=True)
class _Telling:
    """Entry by entry: how far the fork came, and what befell it when. `deciding` is the command that decides it."""

    task: str
    deciding: str
    reached: When = When.COMING_UP
    timed_out: bool = False
    facts: list[Fact] = field(default_factory=list)
    running: str | None = None
    stalled: bool = False
    ended_by: str | None = None
    last_s: float = 0.0
    ran_out: bool = False
    ended: str | None = None
    ended_s: float = 0.0

    def hear(self, entry: Entry) -> None:
        match entry.what:
            case What.READY:
                self._reach(When.HANDED_OVER)
            case What.INTENT:
                self._reach(When.RUNNING)
                self._blur(entry.seconds)
            case What.STARTED:
                self.running, self.stalled = entry.where, False
            case What.ENDED:
                self._end(entry)
            case What.SAVED if entry.where == self.deciding:
                self._reach(When.SAVED)
            case What.KEPT:
                self._reach(When.SAVED)
            case What.CLOSED if entry.where == "by time":
                if _SILENCE & {fact.what for fact in self.facts}:
                    self._add("host silent")
            case What.KILLED_BY:
                self.ended_by = self.ended_by or entry.where
            case What.CLOSED if self.ended_by and not entry.where.endswith(self.ended_by):
                self._add("ended unsaid")
            case What.BEFELL if entry.where == "egress":
                self._add(f"egress {self._during(entry.seconds)}")
            case What.BEFELL if entry.detail == "stall":
                self._add("machine stall")
                self.stalled |= self.running is not None
                if self.running is None and self.ran_out:
                    self._add(STALLED_LATE)
            case _:
                fact = _fact(entry)
                if fact is not None:
                    self._add(fact)
                    self.last_s = entry.seconds

    def _blur(self, seconds: float) -> None:
        """Of what befell a machine just before an intent nobody can tell whether it was not just after it."""
        if not self.facts or seconds >= self.last_s + JUST_S:
            return
        last = self.facts[-1]
        if last.when < When.RUNNING and last.what.startswith(("died", "machine")):
            self.facts[-1] = Fact(last.what, When.RUNNING)

    def _during(self, seconds: float) -> str:
        """Which command ran, or has only just ended: by the host's clock nobody can tell the two apart."""
        if self.running is not None:
            return self._which(self.running)
        if self.ended is not None and seconds < self.ended_s + CLOCK_S:
            return f"late {self._which(self.ended)}"
        return "none"

    def _which(self, exec_id: str) -> str:
        return "task" if exec_id == self.task else "grade"

    def _end(self, entry: Entry) -> None:
        timed_out = bool(entry.detail)
        if timed_out and self.stalled and entry.where in (self.task, self.deciding):
            self._add(STALLED)
        self.ran_out = timed_out
        self.running, self.ended, self.ended_s = None, entry.where, entry.seconds
        if entry.where == self.deciding:
            self._reach(When.ENDED)
            self.timed_out = timed_out

    def _reach(self, when: When) -> None:
        self.reached = max(self.reached, when)

    def _add(self, what: str) -> None:
        self.facts.append(Fact(what, self.reached))


def _fact(entry: Entry) -> str | None:
    match entry.what:
        case What.BEFELL if entry.detail.startswith("spoilt"):
            return f"{entry.where} {_SPOILT.get(entry.detail.split()[-1], 'spoilt')}"
        case What.BEFELL:
            return f"{entry.where} {entry.detail}"
        case What.DIED:
            return f"died {entry.where}"
        case What.WORKER:
            return f"worker {entry.detail}"
        case What.AWAY:
            return "no database"
        case _:
            return None


# What keeps a worker from saying what it sees.
_SILENCE = frozenset({"no database", "worker frozen", "worker killed", "worker superseded"})
# A command that was made to take its machine with it; every other one only does not pass.
_SPOILT = {"hang": "hangs", "crash": "dies", "panic": "dies"}
