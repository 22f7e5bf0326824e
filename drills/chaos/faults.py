"""What befalls a deployment from outside, by dice: its machines, its hosts, its workers, its database."""

from __future__ import annotations

import random
from collections.abc import Callable

from app.domain.machine import DeathCause
from app.errors import FailureKind
from drills.chaos.cluster import Cluster
from drills.chaos.plan import TARGET
from drills.chaos.world import WatchedWorld
from infra.fakes.world import Box

# What each step of a bring-up may raise by the contract of its port.
STEPS: dict[str, tuple[FailureKind, ...]] = {
    "restore": (
        FailureKind.RESTORE_FAILED,
        FailureKind.SNAPSHOT_UNAVAILABLE,
        FailureKind.SNAPSHOT_CORRUPT,
        FailureKind.HOST_DISK_FULL,
    ),
    "attach": (FailureKind.GUEST_HUNG, FailureKind.GUEST_LOST),
    "wake": (FailureKind.BARRIER_FAILED, FailureKind.GUEST_HUNG, FailureKind.GUEST_LOST),
    "open": (FailureKind.GUEST_HUNG, FailureKind.GUEST_LOST),
    "probe": (FailureKind.GUEST_HUNG, FailureKind.GUEST_LOST),
    "start": (FailureKind.EXEC_NOT_STARTED, FailureKind.GUEST_HUNG, FailureKind.GUEST_LOST),
    "end": (FailureKind.GUEST_HUNG, FailureKind.GUEST_LOST),
}
LIES: dict[str, tuple[dict[str, object], ...]] = {
    "wake": (
        {"nonce": "00" * 16},
        {"boot_id": "another boot"},
        {"sample": "5a" * 16},
        {"sample": "0" * 32},
        {"reseeded": False},
        {"guest_wall_ns": 0},
        {"hostname": "sibling"},
        {"host_key_sound": False},
    ),
    "probe": (
        {"foreign_markers": ("of-a-sibling",)},
        {"marker": "another"},
        {"disk_id": "another"},
        {"exit_code": 0},
        {"interfaces": ("lo", "eth0")},
        {"refused_target_reached": True},
    ),
}
# So that one step hooks fewer in a row than a broken channel is tried again.
AT_ONCE = 2
TESTS = ("0.5s exit 1", "100s", "0.5s crash", "0.5s panic", "0.5s hang")


class Faults:
    """The dice of one episode."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self._cluster, self._chance = cluster, chance

    def strike(self, seconds: float) -> None:
        """What befalls in so many seconds."""
        cluster, chances = self._cluster, self._cluster.chances
        if self._falls(chances.planted * seconds):
            self._plant(self._chance.choice(list(cluster.worlds.values())))
        if self._falls(chances.outage * seconds):
            cluster.chronicle.met["outage"] += 1
            cluster.no_database(self._chance.choice((5.0, 15.0, 80.0)))
        if self._falls(chances.billing_asleep * seconds):
            cluster.chronicle.met["billing asleep"] += 1
            cluster.billing_back_s = cluster.now_s + self._chance.uniform(5, 60)
        for host_id, world in list(cluster.worlds.items()):
            self._at_host(host_id, seconds)
            for name, box in list(world.boxes.items()):
                if box.death is None and self._falls(chances.machine * seconds):
                    self._at_machine(world, name, box)

    def _falls(self, chance: float) -> bool:
        return self._chance.random() < chance

    def _plant(self, world: WatchedWorld) -> None:
        roll, chance = self._chance.random(), self._chance
        if roll < 0.55:
            step = chance.choice(tuple(STEPS))
            after = step not in ("restore", "end") and chance.random() < 0.3
            kind = chance.choice(STEPS[step])
            if after and kind in (FailureKind.EXEC_NOT_STARTED, FailureKind.BARRIER_FAILED):
                after = False  # that would be a lie about what was done
            if world.planted(step) < AT_ONCE:
                world.fault(step, kind, after=after)
        elif roll < 0.85:
            step = chance.choice(tuple(LIES))
            world.lie(step, **chance.choice(LIES[step]))
        else:
            world.spoil("test", chance.choice(TESTS))

    def _at_host(self, host_id: str, seconds: float) -> None:
        cluster, chances, process = (
            self._cluster,
            self._cluster.chances,
            self._cluster.processes[host_id],
        )
        if self._falls(chances.host_down * seconds):
            cluster.chronicle.met["host down"] += 1
            cluster.go_down(host_id)
        elif process is not None and self._falls(chances.host_cut_off * seconds):
            cluster.chronicle.met["host cut off"] += 1
            process.cut_off_until_s = cluster.now_s + self._chance.choice((10.0, 30.0, 150.0))
            cluster.note_away(host_id)
        elif process is not None and not process.awake and self._falls(0.05 * seconds):
            cluster.chronicle.met["zombies"] += 1
            cluster.take_over(host_id)
        elif process is not None and process.awake and self._falls(chances.upgrade * seconds):
            cluster.chronicle.met["upgrades"] += 1
            cluster.upgrade(host_id)
        for zombie in list(cluster.zombies):
            if zombie.awake and not zombie.draining and self._falls(0.02 * seconds):
                zombie.kill()

    def _at_machine(self, world: WatchedWorld, name: str, box: Box) -> None:
        acts: list[Callable[[], None]] = [
            lambda: world.kill_from_outside(name, DeathCause.SIGNAL, 9),
            lambda: world.kill_from_outside(name, DeathCause.EXIT),
            lambda: world.kill_from_outside(name, DeathCause.KEEPER_LOST),
            lambda: world.kill_from_outside(name, DeathCause.PANICKED),
            lambda: world.hang(name),
            lambda: world.fill_disk(name),
            lambda: world.stall(name, self._chance.uniform(2, 20)),
        ]
        if box.allowed:
            acts += [lambda: world.lose_egress(name, TARGET, "reset")] * 3
        self._chance.choice(acts)()
