"""Hosts are let in, each with logins of its own, and shut out: by hand, or as their instances come and go.

Whatever is interrupted between the two stores and the secret shows in their lists, and the next turn goes on with it: a
host is let in when all of them have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from app.domain.access import HostAccess, host_named
from app.domain.leak import Leak, LeakKind, is_old_enough
from app.errors import PromigenceError
from app.ports import Ports
from app.ports.access import Access
from app.ports.fleet import Fleet

# In one turn: what comes at once is let in within a few turns, and no turn takes for ever.
MOST_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class Moved:
    """Who was let in and shut out in a turn; `failures` are of single hosts, by id, for the next turn tries again."""

    admitted: tuple[str, ...] = ()
    expelled: tuple[str, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()


def admit(access: Access, host_id: str) -> HostAccess:
    """Let a host in, with new passwords: those before open nothing more. Its secret is put last.

    One that it has goes first: whatever is interrupted, no secret stays whose passwords open nothing. If it fails for a
    host that was not in before, nothing of it is left, as far as the stores answer. Raises BadRequest(bad_host_id),
    Unavailable, Forbidden(not_admin), Conflict and CloudRefused.
    """
    host_named(host_id)
    was_in = host_id in known(access)
    if was_in and access.secrets is not None:
        access.secrets.delete(host_id)
    try:
        made = HostAccess(access.database.create(host_id), access.queue.create(host_id))
        if access.secrets is not None:
            access.secrets.put(host_id, made)
    except PromigenceError:
        if not was_in:
            with suppress(PromigenceError):
                expel(access, host_id)
        raise
    return made


def expel(access: Access, host_id: str) -> None:
    """Shut a host out: its logins first, with their connections, then its secret. Twice is safe, and goes on.

    All three are tried. Raises what failed first.
    """
    failed: list[PromigenceError] = []
    acts = [access.database.remove, access.queue.remove]
    if access.secrets is not None:
        acts.append(access.secrets.delete)
    for act in acts:
        try:
            act(host_named(host_id))
        except PromigenceError as error:
            failed.append(error)
    if failed:
        raise failed[0]


def known(access: Access) -> frozenset[str]:
    """The hosts of which anything is there: a login, or a secret."""
    return frozenset[str]().union(*_lists(access))


def turn(access: Access, fleet: Fleet) -> Moved:
    """Let in the instances of the group that are not, some at a time, and shut out those of hosts that have ended, as
    the cloud says. Two at once would give one host two passwords: its caller sees to it that there is one.

    Raises Unavailable and CloudRefused where the fleet or the stores cannot be read; nothing was done then.
    """
    lists, state = _lists(access), fleet.state()
    complete, any_of = frozenset.intersection(*lists), frozenset[str]().union(*lists)
    living = frozenset(each.instance_id for each in state.living)
    ended = fleet.ended(tuple(sorted(any_of - {each.instance_id for each in state.instances})))
    act = _Acts()
    new = sorted(living - complete)[:MOST_AT_ONCE]
    admitted = [each for each in new if act.on(each, partial(admit, access))]
    expelled = [each for each in sorted(ended) if act.on(each, partial(expel, access))]
    act.on("all", lambda _: access.settle())
    return Moved(tuple(admitted), tuple(expelled), tuple(act.failures))


@dataclass(slots=True)
class Memory:
    """Since when this process has known of a host that was never heard of, by its boot-time clock."""

    since_ns: dict[str, int] = field(default_factory=dict)


def strangers(ports: Ports, access: Access, fleet: Fleet | None, memory: Memory) -> frozenset[Leak]:
    """Hosts that could log in and for an hour have been neither alive nor in the fleet.

    One that never said anything is on its way for as long as this process has looked, up to that hour. Raises
    Unavailable and CloudRefused.
    """
    could = known(access)
    there = _instances(fleet)
    # The rows are read last: who was let in meanwhile, and said so, is no stranger.
    silent_ns = {host.host_id: host.heartbeat_age_ns for host in ports.hosts.list()}
    ages_ns = _ages(could - there, silent_ns, memory, ports.clock.boot_ns())
    found = (
        Leak(LeakKind.HOST_ACCESS, host_id, "it may log in, and is not there", age_ns=age_ns)
        for host_id, age_ns in ages_ns.items()
    )
    return frozenset(leak for leak in found if is_old_enough(leak.kind, leak.age_ns))


def mend(ports: Ports, access: Access, fleet: Fleet | None, memory: Memory, leak: Leak) -> bool:
    """Shut out one that still is a stranger; False if it is none any more."""
    if leak not in strangers(ports, access, fleet, memory):
        return False
    expel(access, leak.name)
    return True


def _ages(
    hosts: Iterable[str], silent_ns: Mapping[str, int], memory: Memory, now_ns: int
) -> dict[str, int]:
    """How long each has been silent, or known without a word of it."""
    names = tuple(hosts)
    unheard = {name: memory.since_ns.get(name, now_ns) for name in names if name not in silent_ns}
    memory.since_ns = unheard
    return {
        name: silent_ns[name] if name in silent_ns else now_ns - unheard[name] for name in names
    }


def _instances(fleet: Fleet | None) -> frozenset[str]:
    if fleet is None:
        return frozenset()
    return frozenset(each.instance_id for each in fleet.state().instances)


@dataclass(slots=True)
class _Acts:
    failures: list[tuple[str, str]] = field(default_factory=list)

    def on(self, host_id: str, act: Callable[[str], object]) -> bool:
        """Whether it was done; what failed is noted."""
        try:
            act(host_id)
        except PromigenceError as error:
            self.failures.append((host_id, f"{error.code}: {error.message}"))
            return False
        return True


def _lists(access: Access) -> tuple[frozenset[str], ...]:
    lists = [access.database.list(), access.queue.list()]
    if access.secrets is not None:
        lists.append(access.secrets.list())
    return tuple(map(frozenset, lists))
