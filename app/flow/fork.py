"""Bring up one placed fork: restore, barrier, hooks, contract; then its own test, or the hand-over."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from app.domain.checks import at_barrier, marker_exit, on_channel, refuse_unsound
from app.domain.failure import Phase
from app.domain.ledger import START_WINDOW_NS
from app.domain.machine import Bundle, Deadline, tail
from app.domain.measure import Step as Measured
from app.domain.run import Claimed, ExecPurpose, ExecSpec
from app.domain.spec import command, targets
from app.errors import Conflict, EnvironmentFault, FailureKind, Unavailable
from app.flow._claimed import (
    definition_of,
    fail,
    failing,
    generation_of,
    hand_over,
    identity_of,
    late_results_dropped,
    launch,
    patiently,
    unsaved,
)
from app.ports import HostPorts, Ports

BARRIER_TIMEOUT_S = 30.0
CHANNEL_TIMEOUT_S = 30.0
PROBE_TIMEOUT_S = 30.0

Step = Callable[[Ports, HostPorts, Claimed], Claimed]


def advance(ports: Ports, host: HostPorts) -> bool:
    """Claim one fork that is placed on this host and bring it up; False when none waits, when none that waits has its
    bundle mounted here (`mount.due` says which to mount), or when enough come up already.
    """
    claimed = _claim(ports, host)
    if claimed is None:
        return False
    with late_results_dropped():
        _bring_up(ports, host, claimed)
    return True


def _claim(ports: Ports, host: HostPorts) -> Claimed | None:
    """The clock is read before the claim: a worker that froze in between starts nothing on waking."""
    waiting = ports.warm.needs(host.host_id).waiting
    if not waiting:
        return None
    with host.mounts.claiming():
        opened_boot_ns = ports.clock.boot_ns()
        mounted = tuple(each for each in host.bundles.mounted() if each in waiting)
        of = host.mounts.claimable(mounted, opened_boot_ns)
        return ports.attempts.open(
            host.host_id,
            host.claim,
            ports.clock.boot_id(),
            opened_boot_ns,
            None,
            host.forks_at_once,
            of,
        )


def _bring_up(ports: Ports, host: HostPorts, claimed: Claimed) -> None:
    for phase, step in STEPS:
        try:
            claimed = step(ports, host, claimed)
        except EnvironmentFault as fault:
            fail(ports, host, claimed, fault, phase)
            return
        except Unavailable as away:
            # What this step learnt is not saved, and nobody could go on from the middle of it.
            fail(ports, host, claimed, unsaved(away), phase)
            return
    if not claimed.run.spec.verify_each:
        hand_over(ports, host, claimed)
        return
    with failing(ports, host, claimed, Phase.TEST):
        launch(ports, host, claimed, ExecPurpose.TEST, definition_of(ports, claimed).test)


def _restore(ports: Ports, host: HostPorts, claimed: Claimed) -> Claimed:
    attempt = claimed.attempt
    bundle = _opened(host, claimed.fork.bundle_id)
    start_by_ns = attempt.opened_boot_ns + START_WINDOW_NS
    deadline = Deadline(attempt.deadline_boot_ns, start_by_ns, attempt.epoch)
    began_ns = ports.clock.boot_ns()
    host.machines.restore(attempt.attempt_id, bundle, deadline)
    ports.measures.took(Measured.RESTORE, ports.clock.boot_ns() - began_ns)
    return claimed


def _opened(host: HostPorts, bundle_id: str) -> Bundle:
    """What is not here could not be mounted a moment ago, and that is the reason."""
    try:
        return host.bundles.open(bundle_id)
    except EnvironmentFault as fault:
        raise (host.mounts.fault_of(bundle_id) or fault) from None


def _barrier(ports: Ports, host: HostPorts, claimed: Claimed) -> Claimed:
    name = claimed.attempt.attempt_id
    told = identity_of(ports, claimed, claimed.fork.fork_id.replace("_", "-"))
    began = ports.clock.boot_ns()
    host.guest.attach(name)
    awake = host.guest.wake(name, told, BARRIER_TIMEOUT_S)
    bundle = host.bundles.open(claimed.fork.bundle_id)
    checks = at_barrier(awake, told, bundle.boot_id, _seconds_since(ports, began))
    refuse_unsound(checks)
    try:
        return patiently(ports, lambda: ports.attempts.checking(claimed, checks, awake.sample))
    except Conflict as conflict:
        if conflict.code != "duplicate_sample":
            raise
        raise EnvironmentFault(
            FailureKind.BARRIER_FAILED,
            "another fork of this run showed the same entropy sample",
            sample=awake.sample,
        ) from conflict


def _hooks(ports: Ports, host: HostPorts, claimed: Claimed) -> Claimed:
    """The snapshot's `on_fork`: it reseeds what was warmed. Opens the command channel, once."""
    name = claimed.attempt.attempt_id
    definition = definition_of(ports, claimed)
    host.guest.open(name, CHANNEL_TIMEOUT_S)
    host.guest.allow(name, targets(claimed.run.spec, definition))
    for number, hook in enumerate(definition.on_fork):
        _run_hook(host, claimed, f"hook{number}_{name}", hook)
    return claimed


def _run_hook(host: HostPorts, claimed: Claimed, exec_id: str, hook: ExecSpec) -> None:
    name = claimed.attempt.attempt_id
    host.guest.start(name, exec_id, command(claimed, hook, generation_of(claimed), ()))
    end = host.guest.end(name, exec_id, wait_s=hook.timeout_ns / 1e9 + 5)
    if end is not None and end.exit_code == 0 and not end.timed_out:
        return
    raise EnvironmentFault(
        FailureKind.BARRIER_FAILED,
        "an on_fork hook did not pass",
        command=hook.argv[-1],
        exit_code=end.exit_code if end else None,
        timed_out=end is None or end.timed_out,
        stderr=tail(end.stderr) if end else "",
    )


def _contract(ports: Ports, host: HostPorts, claimed: Claimed) -> Claimed:
    name = claimed.attempt.attempt_id
    allowed = targets(claimed.run.spec, definition_of(ports, claimed))
    marker = secrets.token_hex(16)
    began = ports.clock.boot_ns()
    probe = host.guest.probe(name, marker, marker_exit(marker), PROBE_TIMEOUT_S)
    bundle = host.bundles.open(claimed.fork.bundle_id)
    seconds = _seconds_since(ports, began)
    checks = on_channel(probe, marker, bundle.disk_id, allowed, seconds)
    refuse_unsound(checks)
    so_far = (*claimed.fork.checks, *checks)
    return patiently(ports, lambda: ports.attempts.checked(claimed, so_far))


def _seconds_since(ports: Ports, began_boot_ns: int) -> float:
    return round((ports.clock.boot_ns() - began_boot_ns) / 1e9, 6)


STEPS: tuple[tuple[Phase, Step], ...] = (
    (Phase.RESTORE, _restore),
    (Phase.BARRIER, _barrier),
    (Phase.BARRIER, _hooks),
    (Phase.CONTRACT, _contract),
)
