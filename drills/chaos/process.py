"""One process of the deployment: its claim, its ports, its steps in flight. It may be killed, frozen, cut off."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.domain.run import ExecPurpose
from app.errors import PromigenceError, StaleClaim, Unavailable
from app.ports import Clock, HostPorts, Ports
from drills.chaos.chronicle import What
from drills.chaos.ports import DATABASE, intercepted_host, intercepted_ports
from drills.chaos.scheduler import Fiber, Killed
from workers.turns import Turns

if TYPE_CHECKING:
    from drills.chaos.cluster import Cluster

LONGEST_PAUSE_S = 4.0
FROZEN_S = (5.0, 90.0)
# Steps that a frozen process was in go on within this time of its waking.
JUST_S = 5.0
_DEATHS_HAND = frozenset({"kill", "forget"})


@dataclass(slots=True)
class _InFlight:
    fiber: Fiber
    what: str
    due_s: float


class Process:
    """A worker of a host, or the billing worker (`host` None). Steps of one process run on fibers, one at a time."""

    def __init__(self, cluster: Cluster, claim: str, clock: Clock, host: HostPorts | None) -> None:
        self.cluster, self.claim = cluster, claim
        self.chance = random.Random(cluster.chance.random())
        self.ports: Ports = intercepted_ports(cluster.ports, clock, self)
        self._host = None if host is None else intercepted_host(host, self)
        self.turns = Turns()
        self.pid = next(cluster.pids)
        self.dead = False
        self.hidden = self.draining = False
        self.frozen_until_s = 0.0
        self.cut_off_until_s = 0.0
        self._in_flight: list[_InFlight] = []
        self._now: _InFlight | None = None
        self._dies_after = self._untold = False

    @property
    def host(self) -> HostPorts:
        """Raises where it has none."""
        assert self._host is not None, f"{self.claim} has no machines"
        return self._host

    @property
    def awake(self) -> bool:
        return not self.dead and self.cluster.now_s >= self.frozen_until_s

    def is_at(self, what: str) -> bool:
        """A step of this name is in flight."""
        return any(each.what == what for each in self._in_flight)

    def step(self, what: str, act: Callable[[], object]) -> None:
        """Begin a step, and go on with it as far as the faults let it."""
        if self.awake:
            self._go_on(_InFlight(self.cluster.scheduler.fiber(act), what, 0.0))

    def go_on(self) -> None:
        """Go on with every step whose pause is over, in any order."""
        if not self.awake:
            return
        due = [each for each in self._in_flight if each.due_s <= self.cluster.now_s]
        self.chance.shuffle(due)
        for each in due:
            if not self.dead:
                self._go_on(each)

    def kill(self) -> None:
        """The process is gone, in the middle of whatever it did."""
        self.dead = True
        for each in self._in_flight:
            each.fiber.kill()
        self._in_flight.clear()
        if self._host is not None:
            self.cluster.bury(self)

    def beat(self) -> None:
        """Say that it lives; drain when that is asked for, and end when it is taken for dead or holds nothing more."""
        try:
            self.draining |= self.ports.workers.beat(self.claim)
        except StaleClaim:
            self.end()
        if self.draining and not any(each.what == "fork" for each in self._in_flight):
            held = self.ports.attempts.held_by(self.host.host_id)
            if all(each.attempt.claim != self.claim for each in held):
                self.ports.workers.end(self.claim)
                self.end()

    def sleep(self, seconds: float) -> None:
        """`Clock.pause` of a step."""
        assert self._now is not None
        self._now.due_s = self.cluster.now_s + seconds
        self._now.fiber.pause()

    def before(self, port: str, verb: str, given: tuple[Any, ...]) -> None:
        """What befalls it before a port call. Raises Unavailable, Killed."""
        if self.dead:
            raise Killed
        if port == "machines" and verb in _DEATHS_HAND:
            self.cluster.check_fence(self, verb, given[0])
        if (port, verb) == ("guest", "attach"):
            self.cluster.channels[given[0]] = self.claim
        chances = self.cluster.chances
        if port in DATABASE and self._is_away(chances.away):
            raise Unavailable("database_away", "planted")
        roll = self.chance.random()
        if roll < chances.crash:
            self._meet("crash")
            if self.chance.random() < 0.5:
                self.end()
            self._dies_after = True
        elif roll < chances.crash + chances.freeze:
            self._meet("freeze")
            self.frozen_until_s = self.cluster.now_s + self.chance.uniform(*FROZEN_S)
            if self._host is not None:
                self.cluster.note_worker(self, "frozen")
            self.sleep(0)
        elif roll < chances.crash + chances.freeze + chances.pause:
            self._meet("pause")
            self.sleep(self.chance.random() * LONGEST_PAUSE_S)

    def after(self, port: str, verb: str, given: tuple[Any, ...], answer: Any) -> None:
        """What was done, for the chronicle; and what befalls it before its caller is told."""
        note = _NOTED.get((port, verb))
        if note is not None:
            note(self, given, answer)
        if self._dies_after:
            self.end()
        if port in DATABASE and self.chance.random() < self.cluster.chances.untold:
            self._meet("untold")
            if (port, verb) == ("attempts", "open") and answer is not None:
                self.cluster.note(answer.attempt.attempt_id, What.BEFELL, "opened", "untold")
            raise Unavailable("database_away", "planted: done, and not told")

    def _go_on(self, step: _InFlight) -> None:
        self._now = step
        step.due_s = 0.0
        try:
            step.fiber.go_on()
        finally:
            self._now = None
        if step in self._in_flight:
            self._in_flight.remove(step)
        if self.dead:
            self._in_flight.append(step)
            self.kill()
            return
        if not step.fiber.over:
            self._in_flight.append(step)
            return
        self._judge(step)

    def _judge(self, step: _InFlight) -> None:
        error = step.fiber.error
        if error is None or _is_expected(error):
            return
        told = "".join(traceback.format_exception(error)[-4:])
        self.cluster.chronicle.surprises.append(f"{step.what} of {self.claim} ended with {told}")

    def _is_away(self, chance: float) -> bool:
        now_s = self.cluster.now_s
        if now_s < self.cut_off_until_s or now_s < self.cluster.database_back_s:
            return True
        away = chance > 0 and self.chance.random() < chance
        if away:
            self._meet("away")
        return away

    def end(self) -> None:
        """Whatever step of it runs goes no further, nor does any other."""
        self.dead = True
        raise Killed

    def _meet(self, what: str) -> None:
        self.cluster.chronicle.met[what] += 1


def _is_expected(error: BaseException) -> bool:
    """An error that a task may end with: its rows are as they were, and recovery comes to them again."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_expected(each) for each in error.exceptions)
    return isinstance(error, PromigenceError) and error.code != "constraint_refused"


def _opened(process: Process, _: tuple[Any, ...], claimed: Any) -> None:
    if claimed is not None:
        cluster, attempt = process.cluster, claimed.attempt
        cluster.chronicle.opened(
            cluster.now_s, attempt.attempt_id, claimed.fork.fork_id, process.claim
        )
        if cluster.now_s < process.frozen_until_s + JUST_S:
            # Its clock was read before it froze.
            cluster.note(attempt.attempt_id, What.WORKER, process.claim, "frozen")
        if process in cluster.zombies:
            cluster.note(attempt.attempt_id, What.WORKER, process.claim, "superseded")


def _adopted(process: Process, given: tuple[Any, ...], claimed: Any) -> None:
    if claimed is not None:
        process.cluster.note(given[0], What.ADOPTED, process.claim)


def _intended(process: Process, _: tuple[Any, ...], running: Any) -> None:
    if running is not None and running.purpose is not ExecPurpose.TEST:
        process.cluster.note(running.attempt_id, What.INTENT, running.exec_id)


def _saved(process: Process, given: tuple[Any, ...], done: bool) -> None:
    ended = given[1]
    if done:
        process.cluster.note(given[0].attempt.attempt_id, What.SAVED, ended.exec_id)


def _kept(process: Process, given: tuple[Any, ...], kept: bool) -> None:
    if kept:
        verdict = given[1].reason.value
        process.cluster.note(given[0].attempt.attempt_id, What.KEPT, verdict)


def _ready(process: Process, given: tuple[Any, ...], _: Any) -> None:
    process.cluster.note(given[0].attempt.attempt_id, What.READY)


def _closed(process: Process, given: tuple[Any, ...], _: Any) -> None:
    closing = given[1]
    then = closing.then.value if closing.then else "another machine"
    kind = closing.failure.kind.value if closing.failure else ""
    process.cluster.note(
        given[0].attempt.attempt_id, What.CLOSED, f"{then} by {process.claim}", kind
    )


def _closed_by_time(process: Process, given: tuple[Any, ...], closed: Any) -> None:
    if closed is not None:
        process.cluster.note(given[0], What.CLOSED, "by time", "host_lost")


def _killed(process: Process, given: tuple[Any, ...], _: Any) -> None:
    process.cluster.note(given[0], What.KILLED_BY, process.claim)


_NOTED: dict[tuple[str, str], Callable[[Process, tuple[Any, ...], Any], None]] = {
    ("attempts", "open"): _opened,
    ("attempts", "adopt"): _adopted,
    ("attempts", "ready"): _ready,
    ("attempts", "keep"): _kept,
    ("attempts", "close"): _closed,
    ("attempts", "close_by_time"): _closed_by_time,
    ("execs", "intend"): _intended,
    ("execs", "finish"): _saved,
    ("machines", "kill"): _killed,
}
