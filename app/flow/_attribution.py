"""Whose doing a command's end was: the task's own, or a fault of its environment that evidence shows."""

from __future__ import annotations

from app.domain.machine import CommandEnd
from app.domain.run import Claimed
from app.errors import EnvironmentFault, FailureKind
from app.flow._claimed import tail
from app.ports import HostPorts

# The monitor's words for a machine that was not running while its command's time was.
STALLS = frozenset({"STOP", "BLOCK_IO_ERROR"})


def environment_fault(
    host: HostPorts, claimed: Claimed, end: CommandEnd
) -> EnvironmentFault | None:
    """What of the environment spoilt this command, by evidence; None where its end is the task's own."""
    name, spec = claimed.attempt.attempt_id, claimed.run.spec.exec
    if end.exit_code is not None and spec and end.exit_code in spec.environment_exit_codes:
        return EnvironmentFault(
            FailureKind.REPORTED_BY_COMMAND,
            f"the command reported a fault of its infrastructure: exit code {end.exit_code}",
            **evidence_of(end),
        )
    if end.exit_code == 0 and not end.timed_out:
        return None
    broken = [line for line in host.guest.egress_log(name) if line["what"] != "refused"]
    if broken:
        return EnvironmentFault(
            FailureKind.EGRESS_LOST,
            f"an allowed target could not be reached while the command ran: {broken[-1]['target']}",
            egress=broken[-8:],
            **evidence_of(end),
        )
    if end.victim_elsewhere and not end.victim_of_own_memory:
        return EnvironmentFault(
            FailureKind.GUEST_OUT_OF_MEMORY,
            "the machine's memory ran out, and a process outside of the command was killed",
            **evidence_of(end),
        )
    stalls = [event.name for event in host.machines.events(name) if event.name in STALLS]
    if end.timed_out and stalls:
        return EnvironmentFault(
            FailureKind.HOST_STALLED,
            "the machine was stopped while its command's time ran",
            stalls=stalls,
            **evidence_of(end),
        )
    return None


def evidence_of(end: CommandEnd) -> dict[str, object]:
    """What was seen of a command's end, as every failure that rests on it carries it."""
    return {
        "exit_code": end.exit_code,
        "signal": end.signal,
        "timed_out": end.timed_out,
        "seconds": end.duration_ns / 1e9,
        "stdout_tail": tail(end.stdout),
        "stderr_tail": tail(end.stderr),
    }
