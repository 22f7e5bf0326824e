"""Strikes as planned: a part, a keeper, the database; each is noted as done, or as one that found nothing to strike."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from drills.cap.plan import OUTAGE_S, Fault, Plan, Target
from drills.rig import Rig
from drills.watch import Watch, living

# A part that is just being started again is waited for; after that there is nothing to strike.
_UP_WITHIN_S = 2.0
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Strikes:
    """What was struck so far. `keepers` are the machines whose keeper was killed."""

    done: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    keepers: list[str] = field(default_factory=list)


@contextlib.contextmanager
def striking(rig: Rig, watch: Watch, plan: Plan) -> Iterator[Strikes]:
    """Strike while the block runs; what is still planned at its end is left out, and the database is in reach again."""
    striker = _Striker(rig, watch, plan)
    thread = threading.Thread(target=striker.run, name="strikes")
    thread.start()
    try:
        yield striker.strikes
    finally:
        striker.over.set()
        thread.join()
        rig.forwarder.mend()


@dataclass(frozen=True, slots=True)
class _Striker:
    """One seed's strikes, in a thread of their own."""

    rig: Rig
    watch: Watch
    plan: Plan
    strikes: Strikes = field(default_factory=Strikes)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        began = time.monotonic()
        chance = random.Random(self.plan.seed)
        for at_s, fault in self._moments():
            if self.over.wait(max(0.0, began + at_s - time.monotonic())):
                return
            if fault is None:
                self.rig.forwarder.mend()
                continue
            struck = self._strike(fault.target, chance)
            (self.strikes.done if struck else self.strikes.missed).append(str(fault))

    def _moments(self) -> list[tuple[float, Fault | None]]:
        """When what is struck; None is the end of an outage."""
        strikes: list[tuple[float, Fault | None]] = [(each.at_s, each) for each in self.plan.faults]
        outages = (each for each in self.plan.faults if each.target is Target.DATABASE)
        ends: list[tuple[float, Fault | None]] = [(each.at_s + OUTAGE_S, None) for each in outages]
        return sorted([*strikes, *ends], key=lambda moment: moment[0])

    def _strike(self, target: Target, chance: random.Random) -> bool:
        if target is Target.DATABASE:
            self.rig.forwarder.cut(self.plan.outage)
            return True
        if target is Target.KEEPER:
            return self._strike_keeper(chance)
        until = time.monotonic() + _UP_WITHIN_S
        while not self.rig.kill_part(target.value):
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK_S)
        return True

    def _strike_keeper(self, chance: random.Random) -> bool:
        alive = living(self.watch.seen())
        if not alive:
            return False
        chosen = chance.choice(alive)
        # Noted first: whoever sees the machine gone must find here why.
        self.strikes.keepers.append(chosen.name)
        with contextlib.suppress(ProcessLookupError):
            os.kill(chosen.keeper_pid, signal.SIGKILL)
        return True
