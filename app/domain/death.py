"""What a machine's death means for its fork: money, a wish, the command's own doing, or an environment fault."""

from __future__ import annotations

import re

from app.domain.fork import EndReason
from app.domain.machine import Death, DeathCause
from app.domain.run import Claimed
from app.errors import EnvironmentFault, FailureKind

# POSIX has fixed this number.
SIGKILL = 9

_PANIC = re.compile(r"Kernel panic - not syncing: [^\n]*")
# The sentences with which the kernel gives up for want of memory (mm/oom_kill.c).
_FOR_MEMORY = re.compile(r"System is deadlocked on memory|Out of memory")
_SENTENCE_CHARS = 300

# How much later than its death a deadline must lie to show that an extension did not arrive.
EXTENSION_NS = 1_000_000_000

_DEATHS: dict[DeathCause, tuple[FailureKind, str]] = {
    DeathCause.ASKED: (
        FailureKind.GUEST_HUNG,
        "the machine lived but did not answer; it was ended",
    ),
    # Met by nobody who had asked the guest: one that is silent is found long before its lease ends.
    DeathCause.DEADLINE: (
        FailureKind.WORKER_LOST,
        "the machine's lease ended, and nobody had collected what became of its commands",
    ),
    DeathCause.SHUTDOWN: (FailureKind.GUEST_LOST, "the machine shut itself down"),
    DeathCause.PANICKED: (FailureKind.GUEST_PANICKED, "the guest's kernel panicked"),
    DeathCause.SIGNAL: (FailureKind.GUEST_LOST, "the machine's process was killed from outside"),
    DeathCause.OUT_OF_MEMORY: (
        FailureKind.HOST_OUT_OF_MEMORY,
        "the host's kernel killed the machine for want of memory",
    ),
    DeathCause.EXIT: (FailureKind.GUEST_LOST, "the machine's process ended by itself"),
    DeathCause.KEEPER_LOST: (
        FailureKind.GUEST_LOST,
        "the machine's keeper was lost, and it with it",
    ),
}


def end_of(claimed: Claimed, death: Death) -> EndReason | None:
    """A death that is no failure of the environment: money, a wish, or the command's own shutdown."""
    attempt, fork = claimed.attempt, claimed.fork
    if fork.stop_asked is not None:
        return fork.stop_asked
    if death.cause is DeathCause.DEADLINE and _held_to_its_end(claimed, death):
        return EndReason.HOLD_EXPIRED
    if death.cause is DeathCause.DEADLINE and attempt.lease_ns < fork.worst_attempt_ns:
        extended = attempt.deadline_boot_ns > death.ended_boot_ns + EXTENSION_NS
        return EndReason.NOT_RENEWED if extended else EndReason.RUN_EXHAUSTED
    if death.cause is DeathCause.SHUTDOWN and attempt.intent and claimed.run.spec.exec:
        return EndReason.COMMAND_SHUT_DOWN
    return None


def _held_to_its_end(claimed: Claimed, death: Death) -> bool:
    """Its caller had it for all of the hold: only nobody billed meanwhile, who would have asked it to stop."""
    hold_ns, ready_ns = claimed.run.spec.hold_ns, claimed.attempt.ready_boot_ns
    if hold_ns is None or ready_ns is None:
        return False
    return death.ended_boot_ns >= ready_ns + hold_ns


def fault_of(met: EnvironmentFault, death: Death, console: str = "") -> EnvironmentFault:
    """A fault that was met, named by how the machine ended; `console` is the last that its guest's kernel said."""
    kind, message = _DEATHS[death.cause]
    if death.cause is DeathCause.DEADLINE and met.kind is FailureKind.GUEST_HUNG:
        # It was asked in its time, and silent: no end of a lease excuses that.
        kind, message = met.kind, "the machine did not answer, and its lease ended meanwhile"
    panic = _panic(console) if death.cause is DeathCause.PANICKED else None
    if panic is not None and _FOR_MEMORY.search(panic):
        kind = FailureKind.GUEST_OUT_OF_MEMORY
        message = "the guest's kernel panicked, as it had no memory and nothing left to kill"
    told = {
        "panic": panic,
        "process_said": death.seen or None,
        "killed_from_outside": True if _from_outside(death) else None,
    }
    evidence: dict[str, object] = {
        "death_cause": death.cause.value,
        "process_exit_code": death.exit_code,
        "process_signal": death.signal,
        **{name: value for name, value in told.items() if value is not None},
        "met": met.message,
        **met.evidence,
    }
    return EnvironmentFault(kind, message, **evidence)


def _from_outside(death: Death) -> bool:
    """Nobody inside can do that. A process that crashes ends by another signal, and that a guest may bring about."""
    killed = death.cause is DeathCause.SIGNAL and death.signal == SIGKILL
    return killed or death.cause is DeathCause.KEEPER_LOST


def _panic(console: str) -> str | None:
    """The sentence of the last panic on a console. That there was one, the machine's monitor says, and not this."""
    found = _PANIC.findall(console)
    return str(found[-1])[:_SENTENCE_CHARS] if found else None
