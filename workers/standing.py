"""How the database stands to what a process of the deployment remembers of it, looked at every second.

A database that was put back to an earlier state looks like any other. Who remembers more than it knows stands still:
claims nothing, ends nothing, and says so, until an operator has said that it was restored. Then an epoch begins.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from threading import Event

import structlog

from app.domain.deployment import Course, Deployment, Seen, course, outvoted, seen_of, told
from app.flow import epoch
from app.ports import HostPorts, Ports
from infra.epochs import EpochMemory

NEW_EPOCH = 72
WENT_BACK = "database_went_back"
SAY_SO = (
    "stop the control plane; if the database was restored, give `promigence-server restored` once"
)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class HostStanding:
    """Of one worker process, from `begin` on; `look` is for once a second, before anything else is done.

    `astray` is set while the database is not the one that this host knows.
    """

    ports: Ports
    host: HostPorts
    memory: EpochMemory
    astray: Event = field(default_factory=Event)
    epoch: int = 0
    _seen: Seen | None = None
    _known: frozenset[str] = frozenset()
    _lost: tuple[str, ...] = ()

    def begin(self) -> None:
        """Before this process claims anything: machines of earlier epochs are ended. Raises Unavailable."""
        self.look_for_lost()
        self.look(ends=False)

    def look(self, *, ends: bool = True) -> bool:
        """Whether to go on. Where an epoch began this process ends with its machines, and the next one begins in it;
        with `ends` false it goes on itself. Raises Unavailable.
        """
        seen = self._remembered()
        now = self.ports.deployments.now()
        match course(seen, now):
            case Course.WENT_BACK if seen is not None:
                self._stand_still(f"{told((seen.epoch, seen.beat))} is remembered here")
                epoch.stand_still(self.ports, self.host, (seen.epoch, seen.beat))
                return False
            case Course.ANOTHER if seen is not None and self.host.machines.live():
                # Not even a heartbeat: what is placed here would never begin.
                self._stand_still(
                    f"machines of deployment {seen.deployment_id} live here, and this is another"
                )
                return False
        if self.epoch not in (0, now.epoch) or (seen is not None and seen.epoch < now.epoch):
            self._begin_epoch(now, seen, ends=ends)
        begins, self.epoch = self.epoch == 0, now.epoch
        self._remember(now, seen)
        if self._lost:
            self._stand_still(f"no row knows the machines {', '.join(self._lost)}")
            epoch.stand_still(self.ports, self.host, (now.epoch, now.beat + 1))
            return False
        if begins or self.astray.is_set():
            # What this host once told would keep the control plane still, whose beat does not go on meanwhile.
            self.ports.deployments.tell_ahead(self.host.host_id, None)
        if self.astray.is_set():
            log.info("database_is_well", beat=now.beat, epoch=now.epoch)
            self.astray.clear()
        return True

    def settle(self, living: Callable[[], Container[str]]) -> None:
        """Every few seconds: end what is left of earlier epochs, and close what their rows believe is open."""
        if self._lost:
            return
        ended = epoch.end_older(self.ports, self.host, self.epoch)
        closed = epoch.settle_older(self.ports, self.host, self.epoch, living)
        if ended or closed:
            log.warning("older_epochs_settled", epoch=self.epoch, machines=ended, closed=closed)

    def spared(self) -> frozenset[str]:
        """Bundles from before the epoch began, for as long as they are left alone."""
        if self._seen is None:
            return frozenset()
        return self._seen.spared(self.ports.limits.restored_grace_ns, self.ports.clock.wall_ns())

    def _remembered(self) -> Seen | None:
        """By this process or another of this host, whichever saw more."""
        noted = self.memory.read()
        if noted is None or self._seen is None or noted.deployment_id != self._seen.deployment_id:
            return noted or self._seen
        return max(noted, self._seen, key=lambda each: (each.epoch, each.beat))

    def _remember(self, now: Deployment, before: Seen | None) -> None:
        bundles = self.host.bundles.known() if before and before.epoch < now.epoch else ()
        seen = seen_of(now, before, self.ports.clock.wall_ns(), bundles)
        if seen != self._seen:
            self.memory.write(seen)
        self._seen = seen

    def _begin_epoch(self, now: Deployment, seen: Seen | None, *, ends: bool) -> None:
        ended = epoch.end_older(self.ports, self.host, now.epoch)
        log.warning("epoch_begins", epoch=now.epoch, before=seen and seen.epoch, machines=ended)
        self._remember(now, seen)
        if ends:
            # Whatever this process believes of its machines, builds and channels is of the epoch before.
            os._exit(NEW_EPOCH)

    def look_for_lost(self) -> None:
        """Every few seconds: machines here that were started by attempts of which the database knows nothing show that
        it went back, though by now it may have come as far as this host remembers.
        """
        here = frozenset(each.name for each in self.host.machines.live())
        lost = epoch.unknown(self.ports, self.host, self._known)
        self._known = here - lost
        self._lost = tuple(sorted(lost))

    def _stand_still(self, why: str) -> None:
        if not self.astray.is_set():
            log.error(WENT_BACK, why=why, what_to_do=SAY_SO)
        self.astray.set()


class ControlStanding:
    """Of the billing worker, which lets the deployment's beat go on; `look` is for once a second.

    It believes its own memory, and hosts where most of them remember more than the database knows. Until it has looked
    once it does nothing.
    """

    def __init__(self, ports: Ports, memory: EpochMemory) -> None:
        self._ports = ports
        self._memory = memory
        self._astray = Event()
        self._astray.set()
        self._why: str | None = None

    def look(self) -> bool:
        """Whether to go on. Raises Unavailable."""
        seen = self._memory.read()
        now = self._ports.deployments.now()
        why = self._gone_back(seen, now)
        if why is not None:
            self._stand_still(why, now)
            return False
        # While it stands, so does the beat: hosts that come back later see the same as those that are there.
        beaten = self._ports.deployments.beat(now.epoch)
        self._memory.write(seen_of(beaten, seen, self._ports.clock.wall_ns()))
        if self._why is not None:
            log.info("database_is_well", beat=beaten.beat, epoch=beaten.epoch)
        self._why = None
        self._astray.clear()
        return True

    def guarded(self, act: Callable[[], object]) -> Callable[[], None]:
        """The same, done only while the database is to be believed."""

        def unless_astray() -> None:
            if not self._astray.is_set():
                act()

        return unless_astray

    def _gone_back(self, seen: Seen | None, now: Deployment) -> str | None:
        if seen is not None and course(seen, now) is Course.WENT_BACK:
            return f"{told((seen.epoch, seen.beat))} is remembered here"
        ahead, heard_of = self._ports.deployments.ahead()
        return f"{ahead} of {heard_of} hosts remember more" if outvoted(ahead, heard_of) else None

    def _stand_still(self, why: str, now: Deployment) -> None:
        if why != self._why:
            log.error(WENT_BACK, why=why, at=told((now.epoch, now.beat)), what_to_do=SAY_SO)
        self._why = why
        self._astray.set()
