"""When the worker is killed: aimed at the moments at which a result could be lost or a command started twice."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from drills.once.counter import Counts
from drills.rig import Rig

_LOOK_S = 0.02
# A moment that does not come is left for the next one.
_COMES_WITHIN_S = 20.0
_UP_WITHIN_S = 60.0
# What a worker does first when it is up: it adopts. Killed in the middle of that, too, now and then.
_SETTLES_S = (0.5, 3.0)
_RESTORING = "SELECT attempt_id FROM fork WHERE run_id = %s AND state = 'restoring'"
_INTENDED = (
    "SELECT exec_id FROM exec JOIN fork USING (fork_id)"
    " WHERE run_id = %s AND purpose = 'task' AND exec.state = 'running'"
)
_LIVES = "SELECT claim FROM worker WHERE pid = %s"


class Moment(StrEnum):
    """`result`: about when a command ends, so that its end is heard, read or stored just then."""

    RESTORE = "restore"
    INTENT = "intent"
    EXEC = "exec"
    RESULT = "result"


@dataclass(slots=True)
class Kills:
    """What was done so far."""

    by_moment: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.by_moment.total()


@contextmanager
def killing(
    rig: Rig, run_id: str, counts: Counts, ends_s: dict[str, float], kills: int, seed: int
) -> Iterator[Kills]:
    """Kill the worker up to `kills` times while the block runs. `ends_s`: how long a command goes on once counted."""
    killer = _Killer(rig, run_id, counts, ends_s, random.Random(seed))
    thread = threading.Thread(target=killer.run, args=(kills,), name="kills")
    thread.start()
    try:
        yield killer.kills
    finally:
        killer.over.set()
        thread.join()


@dataclass(slots=True)
class _Killer:
    rig: Rig
    run_id: str
    counts: Counts
    ends_s: dict[str, float]
    chance: random.Random
    kills: Kills = field(default_factory=Kills)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self, kills: int) -> None:
        waits = {
            Moment.RESTORE: self._in_restore,
            Moment.INTENT: self._after_an_intent,
            Moment.EXEC: self._in_exec,
            Moment.RESULT: self._at_an_end,
        }
        number = 0
        while self.kills.total < kills and not self.over.is_set():
            moment = tuple(Moment)[number % len(Moment)]
            number += 1
            if self._is_up() and waits[moment]() and self.rig.kill_part("worker"):
                self.kills.by_moment[moment.value] += 1

    def _is_up(self) -> bool:
        """A worker that has said so in its row, and had some time."""

        def lives() -> bool:
            worker = self.rig.parts().get("worker")
            return worker is not None and bool(self.rig.postgres.rows(_LIVES, worker.pid))

        return self._until(lives, _UP_WITHIN_S) and not self.over.wait(
            self.chance.uniform(*_SETTLES_S)
        )

    def _in_restore(self) -> bool:
        return self._appears(_RESTORING) and not self.over.wait(self.chance.uniform(0, 0.4))

    def _after_an_intent(self) -> bool:
        return self._appears(_INTENDED) and not self.over.wait(self.chance.uniform(0, 0.03))

    def _in_exec(self) -> bool:
        runs = self._until(lambda: bool(self.rig.postgres.rows(_INTENDED, self.run_id)))
        return runs and not self.over.wait(self.chance.uniform(0, 2))

    def _at_an_end(self) -> bool:
        now = time.monotonic()
        due = [at + self.ends_s[name] - now for name, at in self.counts.first_s().items()]
        coming = sorted(left for left in due if left > 0)
        if not coming:
            return False
        return not self.over.wait(coming[0] + self.chance.uniform(-0.1, 0.4))

    def _appears(self, statement: str) -> bool:
        """Something that was not there a moment ago."""
        before = {str(row) for row in self.rig.postgres.rows(statement, self.run_id)}
        return self._until(
            lambda: any(
                str(row) not in before for row in self.rig.postgres.rows(statement, self.run_id)
            )
        )

    def _until(self, look: Callable[[], bool], within_s: float = _COMES_WITHIN_S) -> bool:
        until = time.monotonic() + within_s
        while not look():
            if time.monotonic() > until or self.over.wait(_LOOK_S):
                return False
        return True
