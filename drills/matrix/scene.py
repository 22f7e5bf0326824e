"""What the cause of a fault gets: the running stack, its run and forks, machines from outside, and bounded waits."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import redis

from drills.rig import Rig
from drills.watch import Seen, Watch

Found = TypeVar("Found")

LOOK_S = 0.1
# A cause waits for as long as its run may take on a busy host; the run's own bound ends it too.
WITHIN_S = 240.0
_REDIS_S = 5.0
_FORKS = 'SELECT fork_id, "index", state FROM fork WHERE run_id = %s AND key = %s ORDER BY "index"'
_LAST_ATTEMPT = (
    "SELECT attempt_id, number, intent, closed_boot_ns FROM attempt"
    " WHERE fork_id = %s ORDER BY number DESC LIMIT 1"
)
_OWNER = "SELECT fork_id, run_id FROM attempt WHERE attempt_id = %s"
_COMMAND = "SELECT state FROM exec WHERE fork_id = %s AND purpose = %s ORDER BY exec_id"


class NotCaused(Exception):
    """What a cause waited for did not come: nothing was shown, whatever the forks' outcome is."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine from outside. Its name is its attempt's id."""

    name: str
    pid: int
    keeper_pid: int
    home: Path

    def signal(self, number: signal.Signals) -> None:
        """Send it, not to its keeper. Raises ProcessLookupError when it is gone."""
        os.kill(self.pid, number)


@dataclass(slots=True)
class Scene:
    """One case on the stage. `run_id` is empty until its run has started (`around` sees it so).

    `over` is set when the run is final or given up: a cause that works on and on ends then. `notes` carry what a cause
    saw to the case's own judgement. Forks are numbered within the case, from 0.
    """

    rig: Rig
    watch: Watch
    case_name: str
    run_id: str = ""
    over: threading.Event = field(default_factory=threading.Event)
    notes: dict[str, Any] = field(default_factory=dict)

    def note(self, name: str, value: object = True) -> None:
        """Keep what a cause saw, for the case's own judgement."""
        self.notes[name] = value

    def until(
        self, look: Callable[[], Found | None], what: str, within_s: float = WITHIN_S
    ) -> Found:
        """Look until there is something (not None, not False). Raises NotCaused when time is up or the run is over."""
        waited_s = 0.0
        while True:
            found = look()
            if found is not None and found is not False:
                return found
            if waited_s > within_s or self.over.wait(LOOK_S):
                why = "the run was over" if self.over.is_set() else f"not within {within_s:.0f} s"
                raise NotCaused(f"{what}: {why}")
            waited_s += LOOK_S

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """What a SELECT finds, past whatever cuts the stack off its database."""
        return self.rig.postgres.rows(statement, *values)

    def fork(self, number: int = 0) -> dict[str, Any]:
        """The row of one of the case's forks: `fork_id`, `index`, `state`."""
        return self.rows(_FORKS, self.run_id, self.case_name)[number]

    def attempt(self, number: int = 0) -> dict[str, Any] | None:
        """The fork's latest attempt: `attempt_id`, `number`, `intent`, `closed_boot_ns`; None before the first."""
        found = self.rows(_LAST_ATTEMPT, self.fork(number)["fork_id"])
        return found[0] if found else None

    def number_of(self, attempt_id: str) -> int | None:
        """Which of the case's forks has this machine; None if none has. Knows it before `run_id` does."""
        for owner in self.rows(_OWNER, attempt_id):
            forks = [row["fork_id"] for row in self.rows(_FORKS, owner["run_id"], self.case_name)]
            return forks.index(owner["fork_id"]) if owner["fork_id"] in forks else None
        return None

    def machine(self, number: int = 0, within_s: float = WITHIN_S) -> Machine:
        """The living machine of the fork's latest attempt, waited for."""
        return self.until(lambda: self._machine(number), "a machine of the fork", within_s)

    def running(
        self, number: int = 0, within_s: float = WITHIN_S, purpose: str = "task"
    ) -> Machine:
        """The same, once the fork's command is known to run there."""

        def runs() -> bool:
            found = self.rows(_COMMAND, self.fork(number)["fork_id"], purpose)
            return any(row["state"] == "running" for row in found)

        self.until(runs, "the fork's command at work", within_s)
        return self.machine(number, within_s)

    def part(self, name: str, within_s: float = WITHIN_S) -> int:
        """The pid of a living part of the stack: `api`, `worker`, `billing`, `redis`."""

        def pid() -> int | None:
            process = self.rig.parts().get(name)
            return None if process is None else process.pid

        return self.until(pid, f"the {name} up", within_s)

    def redis(self) -> redis.Redis:
        """A client of the stack's Redis; the caller closes it."""
        socket = self.rig.places.run_dir / "redis.sock"
        return redis.Redis(unix_socket_path=str(socket), socket_timeout=_REDIS_S)

    def _machine(self, number: int) -> Machine | None:
        attempt = self.attempt(number)
        seen = None if attempt is None else self.watch.seen().get(attempt["attempt_id"])
        return None if seen is None or seen.gone_ns is not None else _of(seen, self.rig.machines)


def _of(seen: Seen, root: Path) -> Machine:
    return Machine(seen.name, seen.pid, seen.keeper_pid, root / seen.name)
