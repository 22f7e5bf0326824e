"""What a lost bell, a dead worker or a dead host left behind: found in the rows, and rung or reaped again."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace

from app.domain.death import end_of
from app.domain.failure import Phase
from app.domain.fork import ForkState
from app.domain.ledger import START_WINDOW_NS
from app.domain.machine import DeathCause
from app.domain.money import NS_PER_SECOND
from app.domain.run import Claimed, Exec, ExecResult, ExecState, Role
from app.domain.snapshot import BuildError, BuildState
from app.domain.spec import targets
from app.errors import EnvironmentFault, FailureKind, Unavailable
from app.flow._broken import PATIENCE_NS, over_channel, seen_behind
from app.flow._claimed import (
    close,
    definition_of,
    fail,
    late_results_dropped,
    patiently,
)
from app.flow._heartbeat import beat
from app.flow._results import is_decided, start_unseen
from app.ports import HostPorts, Ports

CHANNEL_TIMEOUT_S = 30.0
_NEVER_PLACED = BuildError(
    "no_capacity", "no host had room for the template in time", check="placement"
)
_HOST_GONE = BuildError(
    "template_failed",
    "the host that holds the candidate has been silent for an hour",
    check="host_lost",
)
# A host that is silent for longer is not waited for any more by whoever follows a build.
GONE_NS = 3600 * NS_PER_SECOND
# Whoever ends a machine that is coming up, or a template, waits for the database a few times and no longer.
LEFT_ALONE_NS = 5 * PATIENCE_NS
WORKED_ON = frozenset({ForkState.RESTORING, ForkState.CHECKING})


def tick(ports: Ports) -> None:
    """Once a second, beside the billing tick: ring again for everything that waits. Bells are cheap, rows
    are the truth.
    """
    ports.hosts.unassign_dead()
    if ports.hosts.waiting(1):
        ports.bells.place()
    for host_id, build_id, count in ports.hosts.placed():
        if build_id:
            ports.bells.build(host_id, build_id)
        else:
            ports.bells.fork(host_id, count)
    unsettled = ports.builds.unsettled()
    heard_of = _heard_of(ports) if unsettled else frozenset()
    for build, template_host in unsettled:
        if template_host is None:
            ports.builds.refuse(build.build_id, BuildState.FAILED, _NEVER_PLACED)
        elif template_host in heard_of:
            ports.bells.verify(template_host, build.build_id)
        else:
            ports.builds.refuse(build.build_id, BuildState.FAILED, _HOST_GONE)


def _heard_of(ports: Ports) -> frozenset[str]:
    """Hosts that may still come back and settle what they hold."""
    hosts = ports.hosts.list()
    return frozenset(host.host_id for host in hosts if host.heartbeat_age_ns <= GONE_NS)


def watch_host(ports: Ports, host: HostPorts) -> None:
    """Once a second on each host: heartbeat, leases, wishes, deaths that nobody heard, and leavings."""
    beat(ports, host)
    for claimed in ports.attempts.held_by(host.host_id):
        if claimed.attempt.claim == host.claim:
            _attend(ports, host, claimed)
    for asked in ports.execs.queued_for(host.host_id, host.claim):
        ports.bells.exec(host.claim, asked.exec_id)


def _attend(ports: Ports, host: HostPorts, claimed: Claimed) -> None:
    name = claimed.attempt.attempt_id
    host.machines.extend(name, claimed.attempt.deadline_boot_ns)
    if claimed.fork.stop_asked is not None:
        ports.bells.stop(host.claim, name)
    elif claimed.fork.role is Role.FORK and host.machines.death(name) is not None:
        ports.bells.collect(host.claim, name)


def leave(ports: Ports, host: HostPorts) -> None:
    """When a host is taken down on purpose, its worker gone: end its machines, and say so in their rows."""
    for found in ports.attempts.held_by(host.host_id):
        claimed = ports.attempts.adopt(found.attempt.attempt_id, host.host_id, host.claim)
        if claimed is not None:
            with late_results_dropped():
                _leave_one(ports, host, claimed)


def _leave_one(ports: Ports, host: HostPorts, claimed: Claimed) -> None:
    death = host.machines.death(claimed.attempt.attempt_id)
    reason = end_of(claimed, death) if death is not None else None
    if reason is not None:
        close(ports, host, claimed, reason)
        return
    fault = EnvironmentFault(FailureKind.HOST_LOST, "its host was taken down")
    fail(ports, host, claimed, fault, Phase.COLLECT)


def sweep(ports: Ports, host: HostPorts) -> None:
    """Now and then on each host: look at every machine once, for ends whose bell was lost."""
    # The clock first: what was not there when its time was over does not come.
    now_ns, known = ports.clock.boot_ns(), frozenset(host.machines.known())
    for claimed in ports.attempts.held_by(host.host_id):
        if claimed.attempt.claim != host.claim:
            continue
        if claimed.fork.state is not ForkState.RESTORING:
            ports.bells.collect(host.claim, claimed.attempt.attempt_id)
        elif _never_comes(claimed, known, now_ns):
            with late_results_dropped():
                _give_up(ports, host, claimed, "its worker never started the machine")
        elif _left_alone(host, claimed, now_ns):
            with late_results_dropped():
                _give_up(ports, host, claimed, "its worker ended the machine and could not say so")


def _never_comes(claimed: Claimed, known: Container[str], now_ns: int) -> bool:
    """Nothing was made of it, and the time in which a machine of it may start is over."""
    attempt = claimed.attempt
    over = now_ns > attempt.opened_boot_ns + START_WINDOW_NS
    return over and attempt.attempt_id not in known


def _left_alone(host: HostPorts, claimed: Claimed, now_ns: int) -> bool:
    """Its machine ended so long ago that whoever ended it has given up saying so."""
    death = host.machines.death(claimed.attempt.attempt_id)
    return death is not None and now_ns > death.ended_boot_ns + LEFT_ALONE_NS


def adopt(
    ports: Ports, host: HostPorts, living: Callable[[], Container[str]] = frozenset
) -> frozenset[str]:
    """Take over the machines of worker processes that are gone, and end what cannot go on. Twice is safe.

    `living` are the claims of the processes that are not gone: theirs are left alone. Returns the machines that some
    process serves all the same, or that were too busy to answer: they are left as they are, to be adopted later.
    """
    busy = set()
    held = ports.attempts.held_by(host.host_id)
    # Who lives is asked afterwards: whoever begins and claims in between is not among those that hold these.
    others = living()
    for found in held:
        name, before = found.attempt.attempt_id, found.attempt.claim
        if before == host.claim or before in others:
            continue
        try:
            lives = host.machines.recover(name) is not None
        except Unavailable:
            busy.add(name)
            continue
        # Read before the claim: a machine that is ours and whose channels are not would seem not to answer.
        allowed = targets(found.run.spec, definition_of(ports, found)) if lives else None
        claimed = ports.attempts.adopt(name, host.host_id, host.claim, of=before)
        if claimed is not None:
            with late_results_dropped():
                _adopt_one(ports, host, claimed, before, allowed)
    return frozenset(busy)


def _adopt_one(
    ports: Ports, host: HostPorts, claimed: Claimed, before: str, allowed: tuple[str, ...] | None
) -> None:
    """`allowed` is what a machine that lives may reach; None: it does not live."""
    name = claimed.attempt.attempt_id
    if claimed.fork.role is Role.TEMPLATE or claimed.fork.state in WORKED_ON:
        _give_up(ports, host, claimed, "its worker ended while it brought the machine up", before)
        return
    if allowed is None:
        # Ended meanwhile: what its keeper wrote down says how, and what was saved of it stands.
        ports.bells.collect(host.claim, name)
        death = host.machines.death(name)
        if not is_decided(ports, name) and (death is None or death.cause is DeathCause.ASKED):
            lost = EnvironmentFault(FailureKind.GUEST_LOST, "nobody saw its end", worker=before)
            # Whoever ended it is gone: nobody else will say why.
            lost = seen_behind(ports, host, claimed, lost)
            fail(ports, host, claimed, lost, Phase.COLLECT)
        return
    try:
        _take_channels(host, name, allowed)
        for asked in patiently(ports, lambda: ports.execs.unfinished(name)):
            if asked.state is ExecState.RUNNING:
                _take_command(ports, host, claimed, asked)
    except EnvironmentFault as fault:
        if not is_decided(ports, name):
            fail(ports, host, claimed, fault, Phase.COLLECT)
            return
    ports.bells.collect(host.claim, name)


def _take_channels(host: HostPorts, name: str, allowed: tuple[str, ...]) -> None:
    over_channel(host, name, lambda: host.guest.attach(name))
    over_channel(host, name, lambda: host.guest.open(name, CHANNEL_TIMEOUT_S))
    over_channel(host, name, lambda: host.guest.allow(name, allowed))


def _take_command(ports: Ports, host: HostPorts, claimed: Claimed, asked: Exec) -> None:
    """The worker before us may have died between an intent and its first byte: what the guest never saw starts now."""
    if asked.spec is None:
        refused = ("unavailable", "its worker ended while it moved this file; move it again")
        ended = replace(asked, result=ExecResult(error=refused))
        patiently(ports, lambda: ports.execs.finish(claimed, ended))
        ports.bells.woken(asked.exec_id)
        return
    name = claimed.attempt.attempt_id
    try:
        over_channel(host, name, lambda: host.guest.end(name, asked.exec_id))
    except EnvironmentFault as fault:
        if fault.kind is not FailureKind.EXEC_NOT_STARTED:
            raise
        start_unseen(ports, host, claimed, asked, asked.spec)


def _give_up(
    ports: Ports, host: HostPorts, claimed: Claimed, message: str, worker: str | None = None
) -> None:
    """`worker` is the claim of the process that is to blame, where it is not the one that has the machine now."""
    blamed = worker or claimed.attempt.claim
    fault = EnvironmentFault(FailureKind.WORKER_LOST, message, worker=blamed)
    fail(ports, host, claimed, fault, Phase.RESTORE)
