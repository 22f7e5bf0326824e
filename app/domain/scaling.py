"""How many hosts there should be, and which of them may go: a pure decision over what waits, what runs and the fleet.

More hosts are asked for at once, by what waits and fits nowhere. A host goes only after it was empty for a while, one
at a time, and never while anything waits for room: so a load that comes and goes moves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil

from app.domain.fleet import Bounds, FleetState, Lifecycle
from app.domain.machine import Shape
from app.domain.money import NS_PER_SECOND
from app.domain.placement import Host, Waiting, could_take, serves, slots_for, unfit
from app.domain.warm import WarmTarget

# An empty host stays for so long: its mounted snapshots are worth more than its minutes.
IDLE_NS = 600 * NS_PER_SECOND
# An instance that has not registered by then is not waited for any more, and told.
REGISTER_NS = 600 * NS_PER_SECOND
# So many that never did, and another is not asked for: an image that does not come up would fill the fleet with bills.
NEVER_REGISTERED = 2
TOO_LARGE = "larger than a whole host"


@dataclass(frozen=True, slots=True)
class Sight:
    """All that is decided by. `fleet` None: hosts come and go by other hands, and the decision is only told.

    `seen_for_ns` is how long each instance has been known, `empty_for_ns` how long each empty host has been so, and
    `unmet_for_ns` how long more instances have been asked for than there are.
    """

    waiting: tuple[Waiting, ...]
    hosts: tuple[Host, ...]
    targets: tuple[WarmTarget, ...]
    fleet: FleetState | None = None
    seen_for_ns: Mapping[str, int] = field(default_factory=dict)
    empty_for_ns: Mapping[str, int] = field(default_factory=dict)
    unmet_for_ns: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is wanted, and what follows for the fleet.

    `desire` is the number of instances to ask for, None to leave it. `retire` are hosts that may go if they are still
    empty, `protect` instances that the cloud might pick by itself, `silent` those that should have registered long ago.
    `hopeless` are forks that neither a host that is there nor a further one could take, counted by the reason: they do
    not count as wanted. What only those that are there could take counts, and asks for no further host.
    """

    wanted_slots: int
    wanted_hosts: int
    present_hosts: int
    desire: int | None = None
    retire: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    hopeless: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Demand:
    """What waits beyond the room there is: `hosts` more, of which each group is a part."""

    hosts: int
    slots: int
    at_work: int
    hopeless: tuple[tuple[str, int], ...]


def plan(sight: Sight, bounds: Bounds) -> Plan:
    """Two turns over the same sight decide the same."""
    usable = [host for host in sight.hosts if host.takes_forks]
    kinds = _kinds(sight)
    demand = _demand(sight.waiting, usable, kinds)
    warm = _warm_hosts(sight.targets, kinds)
    wanted = max(demand.at_work + demand.hosts, warm, bounds.least)
    running = sum(host.slots - host.free_slots for host in sight.hosts if host.alive)
    told = Plan(
        wanted_slots=running + demand.slots + max(0, warm - demand.at_work - demand.hosts),
        wanted_hosts=min(wanted, bounds.most),
        present_hosts=sum(host.alive for host in sight.hosts),
        hopeless=demand.hopeless,
    )
    if sight.fleet is None:
        return told
    silent = _silent(sight, sight.fleet)
    coming = _coming(sight, sight.fleet, silent)
    more = max(demand.hosts, warm - len(usable)) - coming
    if _never_registered(sight, silent) >= NEVER_REGISTERED:
        more = min(more, 0)
    desire = _desire(sight, sight.fleet, bounds, more)
    grows = desire is not None and desire > sight.fleet.desired
    still = demand.slots == 0 and more <= 0 and not grows
    return replace(
        told,
        desire=desire,
        retire=_retire(sight, sight.fleet, bounds, max(warm, bounds.least), still=still),
        protect=_unprotected(sight.fleet),
        silent=silent,
    )


def _kinds(sight: Sight) -> tuple[Host, ...]:
    """What another host could be: as those that are known, empty and cold; the fleet's own come first."""
    ours = {each.instance_id for each in sight.fleet.instances} if sight.fleet else set()
    known = sorted(
        sight.hosts, key=lambda host: (host.host_id not in ours, not host.alive, host.host_id)
    )
    return tuple(dict.fromkeys(_as_new(host) for host in known))


def _as_new(host: Host) -> Host:
    seen = replace(host.fingerprint, host_id="new", boot_id="", missing=())
    return Host(
        "new",
        seen,
        free_memory_mib=seen.memory_mib,
        free_disk_gib=seen.disk_gib,
        slots=host.slots,
        free_slots=host.slots,
        fetches=host.fetches,
    )


def _demand(waiting: Iterable[Waiting], usable: list[Host], kinds: tuple[Host, ...]) -> _Demand:
    """Fill the room there is, group by group as the placer would, and count what is left in hosts."""
    left = {host.host_id: host for host in usable}
    lacking, slots = Fraction(0), 0
    hopeless: Counter[str] = Counter()
    for fork, count in Counter(_kind_of(each) for each in waiting).items():
        over = _fill(fork, count, left)
        new = next((host for host in kinds if could_take(fork, host)), None)
        if new is not None or not kinds:
            # Of hosts that nobody knows one is asked for: by its coming it says how many more.
            lacking += Fraction(over, count if new is None else _room(fork, new))
        elif over and not any(could_take(fork, host) for host in usable):
            hopeless[_why_never(fork, kinds[0])] += over
            count -= over
        slots += count
    at_work = sum(host.free_slots < host.slots for host in left.values())
    hosts = ceil(lacking) if kinds else min(1, ceil(lacking))
    return _Demand(hosts, slots, at_work, tuple(sorted(hopeless.items())))


def _why_never(fork: Waiting, new: Host) -> str:
    return TOO_LARGE if _room(fork, new) < 1 else str(unfit(fork, new))


def _room(fork: Waiting, new: Host) -> int:
    return slots_for(fork.shape, new, free=False)


def _kind_of(fork: Waiting) -> Waiting:
    """Forks of a kind go to the same hosts."""
    return replace(fork, fork_id="", run_id="", build_id=None)


def _fill(fork: Waiting, count: int, left: dict[str, Host]) -> int:
    """How many of a kind find no room; the others take theirs."""
    for name, host in left.items():
        if count and unfit(fork, host) is None:
            taken = min(count, slots_for(fork.shape, host, free=True))
            left[name] = _filled(host, fork.shape, taken)
            count -= taken
    return count


def _filled(host: Host, shape: Shape, count: int) -> Host:
    return replace(
        host,
        free_memory_mib=host.free_memory_mib - count * shape.memory_mib,
        free_disk_gib=host.free_disk_gib - count * shape.disk_gib,
        free_slots=host.free_slots - count,
    )


def _warm_hosts(targets: Iterable[WarmTarget], kinds: tuple[Host, ...]) -> int:
    """How many hosts the largest warm target asks for that such hosts can meet; a host serves many at once."""
    able = (
        each.hosts
        for each in targets
        if not kinds or any(serves(host, each.restore_key) for host in kinds)
    )
    return max(able, default=0)


def _silent(sight: Sight, fleet: FleetState) -> tuple[str, ...]:
    """Instances that have been there for long, and whose host nobody hears."""
    heard = {host.host_id for host in sight.hosts if host.alive}
    return tuple(
        each.instance_id
        for each in fleet.living
        if each.instance_id not in heard
        and sight.seen_for_ns.get(each.instance_id, 0) >= REGISTER_NS
    )


def _never_registered(sight: Sight, silent: Iterable[str]) -> int:
    """Those of the silent that no row knows: a host that was heard before is another trouble."""
    known = {host.host_id for host in sight.hosts}
    return sum(instance_id not in known for instance_id in silent)


def _coming(sight: Sight, fleet: FleetState, silent: tuple[str, ...]) -> int:
    """How many hosts are on their way: asked for, launched, and not registered yet."""
    known = {host.host_id for host in sight.hosts} | set(silent)
    launched = sum(each.instance_id not in known for each in fleet.living)
    return launched + max(0, fleet.desired - len(fleet.living))


def _desire(sight: Sight, fleet: FleetState, bounds: Bounds, more: int) -> int | None:
    least, most = max(bounds.least, fleet.least), min(bounds.most, fleet.most)
    there = max(fleet.desired, len(fleet.living))
    wanted = min(max(there + max(0, more), least), most)
    if wanted > fleet.desired and (more > 0 or fleet.desired < least):
        return wanted
    # What was asked for, has not come and is not needed or allowed any more is given up: nothing that lives is touched
    # by that, where an instance that arrives just then is protected too.
    fewer = min(fleet.desired + min(0, more), most)
    fewer = max(fewer, len(fleet.living), least)
    if fewer < fleet.desired and fleet.protects_new and sight.unmet_for_ns >= IDLE_NS:
        return fewer
    return None


def _retire(
    sight: Sight, fleet: FleetState, bounds: Bounds, floor: int, *, still: bool
) -> tuple[str, ...]:
    """Hosts that were begun with, and at most one more."""
    in_service = {
        each.instance_id for each in fleet.living if each.lifecycle is Lifecycle.IN_SERVICE
    }
    ours = [host for host in sight.hosts if host.host_id in in_service]
    begun = tuple(host.host_id for host in ours if host.retiring)
    usable = [host for host in ours if host.takes_forks]
    spare = min(
        sum(host.takes_forks for host in sight.hosts) - floor,
        len(fleet.living) - len(begun) - max(bounds.least, fleet.least),
        fleet.desired - len(begun) - fleet.least,
    )
    if not still or begun or spare <= 0:
        return begun
    idle = [
        host
        for host in usable
        if host.free_slots == host.slots
        and sight.empty_for_ns.get(host.host_id, 0) >= IDLE_NS
        # The only copies of its bundles would go with it.
        and (host.fetches or not host.holds)
    ]
    wanted = {each.bundle_id for each in sight.targets}
    first = sorted(idle, key=lambda host: (len(wanted & set(host.mounted)), host.host_id))
    return tuple(host.host_id for host in first[:1])


def _unprotected(fleet: FleetState) -> tuple[str, ...]:
    """The cloud takes protection of what is in service only."""
    return tuple(
        each.instance_id
        for each in fleet.instances
        if each.lifecycle is Lifecycle.IN_SERVICE and not each.protected
    )
