"""Random steps of training, and what befalls them, on fakes: the course of `bench/quotes.py`.

Everything follows from one seeded source of chance, and time is a clock that is moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from app.domain.fork import ForkState
from app.domain.machine import DeathCause
from app.domain.money import NS_PER_SECOND
from app.domain.run import ExecSpec, Fork, Group, RunSpec
from app.errors import Conflict, FailureKind
from app.flow import hold, recover, stop
from app.ports import HostPorts
from infra.fakes.world import World
from tests.flow.stage import PROJECT, Stage, sim

SNAPSHOTS = ("task-suite", "slow-suite")
HOSTS, SLOTS = 3, 16
STEPS_OF_A_MACHINE = {
    "restore": FailureKind.RESTORE_FAILED,
    "attach": FailureKind.BARRIER_FAILED,
    "wake": FailureKind.BARRIER_FAILED,
    "open": FailureKind.CONTRACT_BROKEN,
    "probe": FailureKind.CONTRACT_BROKEN,
    "start": FailureKind.EXEC_NOT_STARTED,
    "end": FailureKind.GUEST_HUNG,
}
ENDS = ("exit 1", "signal 11", "crash", "panic", "poweroff", "hang", "diskfull", "exit 75")
DEATHS = (DeathCause.SIGNAL, DeathCause.PANICKED, DeathCause.SHUTDOWN)
# A course that is not over after so many looks never ends: each is a second or more of the clock.
MAX_LOOKS = 3000


def random_spec(chance: Random) -> RunSpec:
    """What a caller may ask for: groups, limits, a command or a hold; its cap is still without meaning."""
    count = chance.randint(1, 3)
    groups = tuple(
        Group(chance.choice(SNAPSHOTS), chance.randint(1, 5), key=f"prompt-{number}")
        for number in range(count)
    )
    held = chance.random() < 0.3
    return RunSpec(
        groups=groups,
        cap_micros=1,
        exec=None if held else _command(chance),
        grade=None if held or chance.random() < 0.7 else _command(chance),
        hold_ns=chance.randint(20, 120) * NS_PER_SECOND if held else None,
        verify_each=chance.random() < 0.5,
        environment_retries=chance.randint(0, 3),
        rerun_started=chance.random() < 0.4,
        queue_timeout_ns=chance.choice((60, 3600)) * NS_PER_SECOND,
    )


def endless_spec(chance: Random) -> RunSpec:
    """One group whose forks use all that they are given."""
    groups = (Group(chance.choice(SNAPSHOTS), chance.randint(1, 8)),)
    held = chance.random() < 0.3
    return RunSpec(
        groups=groups,
        cap_micros=1,
        exec=None if held else sim("9000s", timeout_s=600),
        hold_ns=600 * NS_PER_SECOND if held else None,
        verify_each=chance.random() < 0.5,
        environment_retries=chance.randint(0, 2),
    )


@dataclass(slots=True)
class Trouble:
    """What befalls the deployment while a step runs. `gone` are hosts that nobody hears, and for how long."""

    stage: Stage
    chance: Random
    folder: Path
    gone: dict[str, tuple[HostPorts, World, int]] = field(default_factory=dict)
    billing_away: int = 0
    hosts_made: int = HOSTS
    counted: dict[str, int] = field(default_factory=dict)

    def run_until_final(self, run_id: str, often: float) -> None:
        """Let the run take its course to the end; `often` is the probability of some trouble at each look."""
        stage = self.stage
        for _ in range(MAX_LOOKS):
            self._return_hosts()
            stage.tick(billing=self.billing_away == 0)
            self.billing_away = max(0, self.billing_away - 1)
            if stage.ports.runs.get(PROJECT, run_id).ended_ns is not None:
                self._return_hosts(at_once=True)
                return
            if self.chance.random() < often:
                self._befall(run_id)
            stage.clock.advance(self.chance.choice((0.5, 2, 6, 15)))
        raise AssertionError(f"{run_id} did not end: {stage.report(run_id)}")

    def _befall(self, run_id: str) -> None:
        troubles: tuple[Callable[[str], None], ...] = (
            self._kill,
            self._kill,
            self._plant,
            self._plant,
            self._use,
            self._use,
            self._release,
            self._restart,
            self._lose_bells,
            self._vanish,
            self._stop_billing,
            self._cancel,
        )
        trouble = self.chance.choice(troubles)
        name = trouble.__name__.strip("_")
        self.counted[name] = self.counted.get(name, 0) + 1
        trouble(run_id)

    def _kill(self, _run_id: str) -> None:
        """A machine dies of itself, or by somebody's signal."""
        living = [
            (world, name)
            for world in self.stage.worlds.values()
            for name, box in world.boxes.items()
            if box.death is None
        ]
        if living:
            world, name = self.chance.choice(living)
            world.die(name, self.chance.choice(DEATHS), 9)

    def _plant(self, _run_id: str) -> None:
        """The next machines of a host fail at a step of their way."""
        step = self.chance.choice(tuple(STEPS_OF_A_MACHINE))
        world = self.chance.choice(tuple(self.stage.worlds.values()))
        world.fault(step, STEPS_OF_A_MACHINE[step], times=self.chance.randint(1, 3))

    def _use(self, run_id: str) -> None:
        """A command in a held fork."""
        for fork in self._ready(run_id)[:1]:
            try:
                hold.exec(self.stage.ports, PROJECT, fork.fork_id, _command(self.chance), None)
            except Conflict:
                # It is not held, or ended a moment ago: nothing was asked of it.
                return

    def _release(self, run_id: str) -> None:
        """A held fork is handed back before its time."""
        for fork in self._ready(run_id)[:1]:
            passed = self.chance.choice((True, False, None))
            try:
                hold.release(self.stage.ports, PROJECT, fork.fork_id, passed, None)
            except Conflict:
                return

    def _restart(self, _run_id: str) -> None:
        """A host's worker dies; the next adopts its machines."""
        self._adopt(self.chance.choice(tuple(self.stage.hosts.values())))

    def _lose_bells(self, _run_id: str) -> None:
        self.stage.bells.waiting.clear()

    def _vanish(self, _run_id: str) -> None:
        """Nobody hears a host any more, for a while or for good; then another takes its place."""
        host_id = self.chance.choice(tuple(self.stage.hosts))
        host, world = self.stage.hosts.pop(host_id), self.stage.worlds.pop(host_id)
        if self.chance.random() < 0.5:
            self.gone[host_id] = (host, world, self.chance.randint(5, 60))
        if not self.stage.hosts or host_id not in self.gone:
            self.stage.add_host(f"host{self.hosts_made}", self.folder, SLOTS)
            self.hosts_made += 1

    def _stop_billing(self, _run_id: str) -> None:
        self.billing_away = self.chance.randint(1, 40)

    def _cancel(self, run_id: str) -> None:
        if self.chance.random() < 0.2:
            stop.cancel(self.stage.ports, PROJECT, run_id)

    def _ready(self, run_id: str) -> list[Fork]:
        forks = [f for f in self.stage.ports.runs.forks(run_id) if f.state is ForkState.READY]
        self.chance.shuffle(forks)
        return forks

    def _return_hosts(self, *, at_once: bool = False) -> None:
        for host_id, (host, world, looks) in list(self.gone.items()):
            if looks > 0 and not at_once:
                self.gone[host_id] = (host, world, looks - 1)
                continue
            del self.gone[host_id]
            self.stage.worlds[host_id] = world
            # Keepers needed nobody meanwhile: what was due to die is dead.
            world.pump()
            self._adopt(host)

    def _adopt(self, host: HostPorts) -> None:
        worker = int(host.claim.rpartition("/")[2]) + 1
        self.stage.hosts[host.host_id] = replace(host, claim=f"{host.host_id}/{worker}")
        recover.adopt(self.stage.ports, self.stage.hosts[host.host_id])


def _command(chance: Random) -> ExecSpec:
    """Early or late, well or badly, in its time or past its limit."""
    seconds, limit = chance.choice((0.2, 10, 40, 90, 300)), chance.choice((20, 60, 120))
    end = "exit 0" if chance.random() < 0.6 else chance.choice(ENDS)
    return sim(f"{seconds}s {end}", timeout_s=limit, environment_exit_codes=(75,))
