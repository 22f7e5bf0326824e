"""The fleet follows what waits and what runs: one turn looks, decides, and moves it a little.

A host goes in three steps, each of which the next turn goes on with: its row is taken out of placement while it is
empty, which a fork that comes first prevents; its instance is ended by itself; the cloud says that it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from app.domain.fleet import Bounds, FleetState
from app.domain.run import Attempt
from app.domain.scaling import Plan, Sight, plan
from app.errors import CloudRefused, Unavailable
from app.flow._claimed import ring_after
from app.ports import Ports
from app.ports.fleet import Fleet

# More than any fleet takes at once; what waits beyond that is seen when these have their place.
MOST_WAITING = 5000
_GONE = "its instance has ended, as the cloud says"

T = TypeVar("T")


@dataclass(slots=True)
class Memory:
    """Since when things are as they are, by this process's boot-time clock; a new process begins anew, and waits."""

    seen: dict[str, int] = field(default_factory=dict)
    empty: dict[str, int] = field(default_factory=dict)
    unmet: dict[str, int] = field(default_factory=dict)

    def ages(self, what: dict[str, int], names: Iterable[str], now_ns: int) -> dict[str, int]:
        """How long each of the names has been so without a break."""
        since = {name: what.get(name, now_ns) for name in names}
        what.clear()
        what.update(since)
        return {name: now_ns - began_ns for name, began_ns in since.items()}


@dataclass(frozen=True, slots=True)
class Moved:
    """What a turn decided and what came of it; `failures` are the cloud's refusals, by what was asked for."""

    plan: Plan
    fleet: FleetState | None
    retired: tuple[str, ...] = ()
    closed: int = 0
    failures: tuple[tuple[str, str], ...] = ()


def look(ports: Ports, state: FleetState | None, bounds: Bounds, memory: Memory) -> Plan:
    """What is wanted now, and what follows for the fleet."""
    now_ns, hosts = ports.clock.boot_ns(), ports.hosts.list()
    living = () if state is None else state.living
    empty = [host.host_id for host in hosts if host.alive and host.free_slots == host.slots]
    unmet = ["fleet"] if state is not None and state.desired > len(living) else []
    sight = Sight(
        waiting=ports.hosts.waiting(MOST_WAITING),
        hosts=hosts,
        targets=ports.warm.list(),
        fleet=state,
        seen_for_ns=memory.ages(memory.seen, [each.instance_id for each in living], now_ns),
        empty_for_ns=memory.ages(memory.empty, empty, now_ns),
        unmet_for_ns=memory.ages(memory.unmet, unmet, now_ns).get("fleet", 0),
    )
    return plan(sight, bounds)


def turn(ports: Ports, fleet: Fleet | None, bounds: Bounds, memory: Memory) -> Moved:
    """Once in some seconds, by the billing worker. Two at once are harmless: what both ask for is the same.

    Raises Unavailable(cloud_away) and CloudRefused where the fleet cannot even be read; nothing was done then.
    """
    state = None if fleet is None else fleet.state()
    wanted = look(ports, state, bounds, memory)
    if fleet is None:
        return Moved(wanted, state)
    act = _Acts(fleet)
    if wanted.protect:
        act.ask("protect", lambda: fleet.protect(wanted.protect))
    if wanted.desire is not None:
        count = wanted.desire
        act.ask("desire", lambda: fleet.desire(count))
    retired = [name for name in wanted.retire if _retire(ports, act, name)]
    closed = _close_gone(ports, fleet, act)
    return Moved(wanted, state, tuple(retired), closed, tuple(act.failures))


@dataclass(slots=True)
class _Acts:
    """What is asked of the cloud in one turn: each thing by itself, for the next turn asks again."""

    fleet: Fleet
    failures: list[tuple[str, str]] = field(default_factory=list)

    def ask(self, what: str, act: Callable[[], T]) -> tuple[T, ...]:
        """What came of it; nothing if the cloud refused it or is away, which is noted."""
        try:
            return (act(),)
        except (CloudRefused, Unavailable) as error:
            self.failures.append((what, f"{error.code}: {error.message}"))
            return ()


def _retire(ports: Ports, act: _Acts, host_id: str) -> bool:
    """Out of placement first, by a row that only an empty host gets: what is ended then has nothing on it."""
    if not ports.hosts.retire(host_id):
        return False
    return bool(act.ask(f"retire {host_id}", lambda: act.fleet.retire(host_id)))


def _close_gone(ports: Ports, fleet: Fleet, act: _Acts) -> int:
    """Attempts of hosts that are silent, once the cloud says that their instance has ended: law 8 need not wait.

    A host that is not an instance of the cloud's, or that it has forgotten, is left to law 8.
    """
    silent = tuple(host.host_id for host in ports.hosts.list() if not host.alive)
    held = {host_id: ports.attempts.held_by(host_id) for host_id in silent}
    asked = tuple(host_id for host_id, machines in held.items() if machines)
    if not asked:
        return 0
    (ended,) = act.ask("ended", lambda: fleet.ended(asked)) or (frozenset[str](),)
    gone = [claimed.attempt for host_id in sorted(ended) for claimed in held[host_id]]
    return sum(_close(ports, attempt) for attempt in gone)


def _close(ports: Ports, attempt: Attempt) -> bool:
    closed = ports.attempts.close_gone(attempt.attempt_id, _GONE)
    if closed is not None:
        ring_after(ports, closed)
    return closed is not None
