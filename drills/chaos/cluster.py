"""A whole deployment below the API in one process: real rows, simulated machines on several hosts, bells in a list."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from app.domain.leak import Leak, Trace
from app.domain.machine import Shape
from app.domain.rates import Price, RateCard
from app.domain.snapshot import Definition
from app.domain.worker import Worker
from app.errors import Unavailable
from app.flow import bill, build, inspect, recover, report, selftest
from app.ports import HostPorts, Ports
from app.ports.bundle import Limits
from drills.chaos.chances import NO_FAULTS, Chances
from drills.chaos.chronicle import Chronicle, What
from drills.chaos.plan import TARGET
from drills.chaos.process import Process
from drills.chaos.scheduler import Scheduler
from drills.chaos.tasks import TASKS
from drills.chaos.world import HostClock, WatchedWorld
from infra.blobs import FolderBlobs
from infra.fakes.bells import Bell, FakeBells
from infra.fakes.clock import ManualClock
from infra.fakes.guest import FakeGuest
from infra.fakes.machines import FakeBundles, FakeImages, FakeMachines
from infra.stack.process import Process as Seen
from infra.store import Stores
from workers.peers import Peers
from workers.reaping import REAP_PERIOD_S, Reaper, host_reaper
from workers.recovery import INSPECT_PERIOD_S, SWEEP_PERIOD_S, Adoption

PROJECT = "default"
SHAPE = Shape(1, 512, 4)
CARD = RateCard("chaos-1", (Price(SHAPE, 36_000, 72_000),))  # committed: 10 micro-dollars a second
RESTART_S = (1.0, 20.0)
BOOT_S = (20.0, 120.0)


class NoTraces:
    """Simulated machines leave none."""

    def found(self) -> tuple[Trace, ...]:
        return ()

    def remove(self, leak: Leak) -> bool:
        raise AssertionError(f"{leak} was never found")


@dataclass(slots=True)
class _Duties:
    """What a worker does beside its tasks, each at its pace, and when it is due: seconds of the episode."""

    acts: dict[str, tuple[float, Callable[[], object]]]
    due_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    begun: bool = False


class Cluster:
    """Hosts with their workers, a billing worker, and the queue between them."""

    def __init__(
        self,
        stores: Stores,
        clock: ManualClock,
        folder: Path,
        chance: random.Random,
        hosts: int,
        slots: int,
    ) -> None:
        self.stores, self.clock, self.chance, self.slots = stores, clock, chance, slots
        self.began_ns = clock.boot_ns()
        self.chances: Chances = NO_FAULTS
        self.chronicle = Chronicle()
        self.bells = FakeBells()
        self.scheduler = Scheduler()
        self.ports = _ports(stores, self.bells, clock, folder)
        self.folder = folder
        self.starts: Counter[str] = Counter()
        self.pids = itertools.count(1)
        # Which claim's process holds the channels of a machine.
        self.channels: dict[str, str] = {}
        self.database_back_s = 0.0
        self.billing_back_s = 0.0
        self.worlds: dict[str, WatchedWorld] = {}
        self.processes: dict[str, Process | None] = {}
        self.zombies: list[Process] = []
        self.back_s: dict[str, float] = {}
        self._boots: Counter[str] = Counter()
        self._workers: Counter[str] = Counter()
        self._duties: dict[str, _Duties] = {}
        self.billing = Process(self, "billing", clock, None)
        for number in range(hosts):
            self._boot(f"host{number}")
            self._start(f"host{number}")

    @property
    def now_s(self) -> float:
        return (self.clock.boot_ns() - self.began_ns) / 1e9

    def note(self, subject: str, what: What, where: str = "", detail: str = "") -> None:
        """An entry of the chronicle, now."""
        self.chronicle.note(self.now_s, subject, what, where, detail)

    def heard(self, name: str) -> None:
        """The process that holds a machine's channels is told by it."""
        self.bells.collect(self.channels[name], name)

    def tick(self, seconds: float) -> None:
        """Time passes; machines act, bells ring, steps go on, paces come round."""
        self.clock.advance(seconds)
        for world in self.worlds.values():
            world.pump()
        self._restart()
        self._ring()
        for process in self._alive():
            process.go_on()
        for process in self._alive():
            self._pace(process, self._duties[process.claim])
        self._bill()
        self.billing.go_on()

    def settle(self) -> None:
        """Ring until no bell is left (only while there are no faults)."""
        for _ in range(10_000):
            if not self.bells.waiting:
                return
            self._ring()
        raise AssertionError("bells ring each other for ever")

    def build(self, definition: Definition) -> None:
        """Build and verify a snapshot, in calm chances."""
        answer = build.start(self.ports, PROJECT, definition, None)
        for _ in range(1000):
            self.tick(1.0)
            page = report.build(self.ports, PROJECT, str(answer["build_id"]))
            if page["state"] == "verified":
                return
        raise AssertionError(f"the build did not end: {page}")

    def take_over(self, host_id: str) -> None:
        """Start another worker beside the one that is there, which becomes a zombie: perhaps one that nobody sees."""
        process = self.processes[host_id]
        if process is not None:
            process.hidden = self.chance.random() < 0.5
            self.zombies.append(process)
            self.note_worker(process, "superseded")
            self._start(host_id)

    def upgrade(self, host_id: str) -> None:
        """Ask the worker that is there to drain, and start another beside it."""
        process = self.processes[host_id]
        if process is not None:
            self.stores.workers.drain(host_id)
            self.zombies.append(process)
            self._start(host_id)

    def lives(self, seen: Seen) -> bool:
        """Whether a process is there, as another of its host sees it."""
        return any(each.pid == seen.pid and not each.hidden for each in self._alive())

    def end(self, seen: Seen) -> bool:
        """End a process from outside; whether it is gone."""
        for process in self._alive():
            if process.pid == seen.pid:
                process.kill()
        return True

    def go_down(self, host_id: str) -> None:
        """A host loses power; it comes back later, with nothing of what it had."""
        process = self.processes[host_id]
        self.worlds[host_id].go_down()
        if process is not None:
            process.kill()
        for zombie in [each for each in self.zombies if each.host.host_id == host_id]:
            zombie.kill()
        self._boot(host_id)
        self.back_s[host_id] = self.now_s + self.chance.uniform(*BOOT_S)

    def bury(self, process: Process) -> None:
        """A worker process is gone, with its channels; another comes."""
        host_id = process.host.host_id
        for name, box in self.worlds[host_id].boxes.items():
            if self.channels.get(name) == process.claim:
                box.attached = False
        self.note_worker(process, "killed")
        if process in self.zombies:
            self.zombies.remove(process)
            return
        self.processes[host_id] = None
        self.back_s.setdefault(host_id, self.now_s + self.chance.uniform(*RESTART_S))

    def check_fence(self, process: Process, verb: str, name: str) -> None:
        """A process that another has followed ends and forgets no machine that the other holds."""
        if process not in self.zombies:
            return
        found = self.stores.attempts.get(name)
        if found is None or found.attempt.closed_boot_ns is not None:
            return
        if found.attempt.claim != process.claim:
            self.chronicle.surprises.append(
                f"{process.claim} was to {verb} {name}, which {found.attempt.claim} holds"
            )

    def no_database(self, seconds: float) -> None:
        """The database is away for everyone."""
        self.database_back_s = self.now_s + seconds
        for host_id in self.worlds:
            self.note_away(host_id)

    def note_worker(self, process: Process, what: str) -> None:
        """Machines whose worker is killed, frozen, or followed by another."""
        for claimed in self.stores.attempts.held_by(process.host.host_id):
            if claimed.attempt.claim == process.claim:
                self.note(claimed.attempt.attempt_id, What.WORKER, process.claim, what)

    def note_away(self, host_id: str) -> None:
        """Machines whose worker cannot reach the database from now on."""
        for claimed in self.stores.attempts.held_by(host_id):
            self.note(claimed.attempt.attempt_id, What.AWAY)

    def close(self) -> None:
        """End what is in flight, and the threads."""
        for process in self._alive():
            process.kill()
        self.billing.kill()
        self.scheduler.close()

    def _takes(self, process: Process) -> bool:
        """A worker that has begun listens to its host's queue, until it drains; also one that another has followed."""
        return self._duties[process.claim].begun and not process.draining

    def _alive(self) -> list[Process]:
        return [*(each for each in self.processes.values() if each is not None), *self.zombies]

    def _boot(self, host_id: str) -> None:
        clock = HostClock(self.clock, int(host_id.removeprefix("host")), self._boots[host_id])
        self.worlds[host_id] = WatchedWorld(self, clock, self.starts)
        self._boots[host_id] += 1

    def _start(self, host_id: str) -> None:
        self._workers[host_id] += 1
        world = self.worlds[host_id]
        host = HostPorts(
            host_id=host_id,
            claim=f"{host_id}/{self._workers[host_id]}",
            machines=FakeMachines(world, host_id),
            guest=FakeGuest(world),
            bundles=FakeBundles(self.folder / "bundles"),
            forks_at_once=self.slots,
        )
        process = Process(self, host.claim, world.clock, host)
        self.processes[host_id] = process
        self._duties[host.claim] = _Duties(self._acts(process))
        self.back_s.pop(host_id, None)

    def _acts(self, process: Process) -> dict[str, tuple[float, Callable[[], object]]]:
        ports, host = process.ports, process.host
        peers = Peers(ports.workers, host.host_id, host.claim, self.lives, self.end)
        reaper: Reaper = host_reaper(ports, host, NoTraces())
        return {
            "presence": (1.0, process.beat),
            "watch": (1.0, lambda: recover.watch_host(ports, host)),
            "sweep": (SWEEP_PERIOD_S, lambda: recover.sweep(ports, host)),
            "adopt": (SWEEP_PERIOD_S, Adoption(ports, host, peers.living).go_on),
            "selftest": (SWEEP_PERIOD_S, lambda: selftest.run(ports, host)),
            "inspect": (INSPECT_PERIOD_S, lambda: inspect.inspect(ports, host)),
            "reap": (REAP_PERIOD_S, reaper.turn),
        }

    def _restart(self) -> None:
        for host_id, back_s in list(self.back_s.items()):
            if self.now_s >= back_s:
                self._start(host_id)

    def _ring(self) -> None:
        rung = list(self.bells.waiting)
        self.bells.waiting.clear()
        late = []
        for bell in rung:
            roll, chances = self.chance.random(), self.chances
            if roll < chances.bell_lost:
                self.chronicle.met["bell lost"] += 1
            elif roll < chances.bell_lost + chances.bell_doubled:
                self.chronicle.met["bell doubled"] += 1
                late.append(bell)
                self._ring_one(bell)
            elif roll < chances.bell_lost + chances.bell_doubled + chances.bell_late:
                self.chronicle.met["bell reordered"] += 1
                late.append(bell)
            else:
                self._ring_one(bell)
        if self.chances is not NO_FAULTS:
            self.chance.shuffle(late)
        self.bells.waiting.extend(late)

    def _ring_one(self, bell: Bell) -> None:
        process = self._rung(bell)
        if process is None:
            return
        if not process.awake:
            self.bells.waiting.append(bell)  # it lies in the queue of whoever does not look
            return
        process.step(bell.task, partial(TASKS[bell.task], process, *bell.ids))

    def _rung(self, bell: Bell) -> Process | None:
        if bell.task == "place":
            alive = [each for each in self.processes.values() if each is not None]
            return self.chance.choice(alive) if alive else None
        return next(
            (
                each
                for each in self._alive()
                if bell.ids[0] == each.claim
                or (bell.ids[0] == each.host.host_id and self._takes(each))
            ),
            None,
        )

    def _pace(self, process: Process, duties: _Duties) -> None:
        if not duties.begun:
            if not process.is_at("begin"):
                process.step("begin", lambda: self._begin(process, duties))
            return
        for name, (period_s, act) in duties.acts.items():
            if self.now_s >= duties.due_s[name] and not process.is_at(name):
                duties.due_s[name] = self.now_s + period_s
                process.step(name, act)

    def _begin(self, process: Process, duties: _Duties) -> None:
        """As `workers.host.run`: a process that cannot be known ends, and the next has a claim of its own."""
        worker = Worker(process.claim, process.host.host_id, "boot", process.pid, 0, "chaos")
        try:
            process.ports.hosts.register(process.host.machines.fingerprint(), self.slots)
            process.ports.workers.begin(worker)
        except Unavailable:
            process.end()
        duties.begun = True

    def _bill(self) -> None:
        if self.billing.dead:
            self.billing = Process(self, "billing", self.clock, None)
        if self.now_s < self.billing_back_s or self.billing.is_at("bill"):
            return
        ports = self.billing.ports
        self.billing.step("bill", lambda: bill.tick(ports))
        self.billing.step("recover", lambda: recover.tick(ports))


def _ports(stores: Stores, bells: FakeBells, clock: ManualClock, folder: Path) -> Ports:
    fields = {name: getattr(stores, name) for name in stores.__dataclass_fields__}
    known = {name: port for name, port in fields.items() if name in Ports.__dataclass_fields__}
    return Ports(
        **known,
        bells=bells,
        blobs=FolderBlobs(folder / "blobs"),
        clock=clock,
        rates=CARD,
        images=FakeImages("debian-12"),
        limits=Limits(max_forks_per_run=2000, egress=(TARGET,)),
    )
