"""A machine that is brought up as a fork is, for a check of ours: it costs no run anything, and nothing of it is left.

Its keeper ends it at its deadline, and its name says when that is, so that a reaper leaves it alone until then and no
crash leaves it for longer.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from app.domain.checks import at_barrier, marker_exit, on_channel, refuse_unsound
from app.domain.ledger import START_WINDOW_NS
from app.domain.machine import Bundle, CommandEnd, Deadline, Identity, tail
from app.domain.run import ExecSpec
from app.domain.spec import trial_command
from app.domain.trial import TRIAL_NS, trial_name
from app.errors import EnvironmentFault, FailureKind, Unavailable
from app.flow._broken import over_channel
from app.ports import HostPorts, Ports

STEP_TIMEOUT_S = 30.0
# The guest ends a command at its limit; beyond this it does not answer any more.
ANSWER_S = 5.0


@dataclass(frozen=True, slots=True)
class Trial:
    """One such machine, up and sound. `allowed` are the targets that it may reach."""

    name: str
    generation: str
    allowed: tuple[str, ...]


@contextmanager
def brought_up(
    ports: Ports,
    host: HostPorts,
    bundle: Bundle,
    *,
    hooks: tuple[ExecSpec, ...] = (),
    allowed: tuple[str, ...] = (),
    runs_ns: int = 0,
) -> Iterator[Trial]:
    """Inside, a machine of this bundle has passed restore, barrier, hooks and contract; it lives `runs_ns` longer than
    these may take.

    Raises EnvironmentFault with the console's tail, also for what goes wrong inside; NO_CAPACITY where there is no room
    for it beside the forks that go on here; no fork gets that room meanwhile.
    """
    now_ns = ports.clock.boot_ns()
    lives_ns = TRIAL_NS + runs_ns + sum(hook.timeout_ns for hook in hooks)
    deadline = Deadline(now_ns + lives_ns, now_ns + START_WINDOW_NS)
    name = trial_name(now_ns, deadline.boot_ns, secrets.token_hex(6))
    trial = Trial(name, str(uuid.uuid4()), allowed)
    held = _room(ports, host, trial, bundle, lives_ns)
    with host.mounts.using(bundle.bundle_id), held, _nothing_left(host, name):
        host.machines.restore(name, bundle, deadline)
        _barrier(ports, host, trial, bundle)
        host.guest.open(name, STEP_TIMEOUT_S)
        host.guest.allow(name, allowed)
        for number, hook in enumerate(hooks):
            _hook(host, trial, f"hook{number}", hook)
        _contract(ports, host, trial, bundle)
        yield trial


def run(host: HostPorts, trial: Trial, word: str, spec: ExecSpec) -> CommandEnd:
    """Run a command in it to its end. Raises EnvironmentFault(guest_hung) if the guest does not tell of that."""
    exec_id = f"{word}_{trial.name}"
    told = trial_command(spec, trial.name, trial.generation, trial.allowed)
    within_s = spec.timeout_ns / 1e9 + ANSWER_S
    over_channel(host, trial.name, lambda: host.guest.start(trial.name, exec_id, told))
    end = over_channel(
        host, trial.name, lambda: host.guest.end(trial.name, exec_id, wait_s=within_s)
    )
    if end is None:
        raise EnvironmentFault(
            FailureKind.GUEST_HUNG, f"the guest did not say that its {word} ended, past its limit"
        )
    return end


@contextmanager
def _nothing_left(host: HostPorts, name: str) -> Iterator[None]:
    try:
        yield
    except EnvironmentFault as fault:
        console = {"console_tail": host.machines.console_tail(name)}
        raise EnvironmentFault(
            fault.kind, fault.message, **{**console, **fault.evidence}
        ) from fault
    finally:
        host.machines.kill(name)
        host.guest.close(name)
        host.machines.forget(name)


@contextmanager
def _room(
    ports: Ports, host: HostPorts, trial: Trial, bundle: Bundle, lives_ns: int
) -> Iterator[None]:
    """What runs here goes on, and a trial takes none of its room. Where its worker dies, or the rows are away at its
    end, that is free again when its time is over.
    """
    if not ports.hosts.hold(host.host_id, trial.name, bundle.shape, lives_ns):
        raise EnvironmentFault(
            FailureKind.NO_CAPACITY, "there is no room for it beside the forks that go on here"
        )
    try:
        yield
    finally:
        with suppress(Unavailable):
            ports.hosts.let_go(trial.name)


def _barrier(ports: Ports, host: HostPorts, trial: Trial, bundle: Bundle) -> None:
    told = Identity(
        fork_id=trial.name,
        hostname=trial.name,
        generation=trial.generation,
        machine_id=secrets.token_hex(16),
        nonce=secrets.token_hex(16),
        entropy=secrets.token_bytes(64),
        wall_ns=ports.clock.wall_ns(),
    )
    began = ports.clock.boot_ns()
    host.guest.attach(trial.name)
    awake = host.guest.wake(trial.name, told, STEP_TIMEOUT_S)
    seconds = (ports.clock.boot_ns() - began) / 1e9
    refuse_unsound(at_barrier(awake, told, bundle.boot_id, seconds))


def _hook(host: HostPorts, trial: Trial, word: str, hook: ExecSpec) -> None:
    end = run(host, trial, word, hook)
    if end.exit_code != 0 or end.timed_out:
        raise EnvironmentFault(
            FailureKind.BARRIER_FAILED,
            "an on_fork hook did not pass",
            command=hook.argv[-1],
            exit_code=end.exit_code,
            timed_out=end.timed_out,
            stderr=tail(end.stderr),
        )


def _contract(ports: Ports, host: HostPorts, trial: Trial, bundle: Bundle) -> None:
    marker = secrets.token_hex(16)
    began = ports.clock.boot_ns()
    probe = host.guest.probe(trial.name, marker, marker_exit(marker), STEP_TIMEOUT_S)
    seconds = (ports.clock.boot_ns() - began) / 1e9
    refuse_unsound(on_channel(probe, marker, bundle.disk_id, trial.allowed, seconds))
