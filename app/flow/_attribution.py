"""Whose doing a command's end was: the task's own, or a fault of its environment that evidence shows."""

from __future__ import annotations

from app.domain.attribution import Strain
from app.domain.egress import lost_while
from app.domain.machine import CommandEnd, tail
from app.domain.money import NS_PER_SECOND
from app.domain.run import Exec, ExecSpec
from app.errors import EnvironmentFault, FailureKind
from app.ports import HostPorts

# A command's own time begins after its machine was looked at for it: a channel may have to be opened first.
STARTS_NS = 5 * NS_PER_SECOND


def environment_fault(host: HostPorts, ended: Exec, end: CommandEnd) -> EnvironmentFault | None:
    """What of the environment spoilt this command, by evidence; None where its end is the task's own.

    Only what happened since the command was started counts, and nothing does against one that passed.
    """
    name, spec = ended.attempt_id, ended.spec
    if spec is None:
        return None
    if end.exit_code is not None and end.exit_code in spec.environment_exit_codes:
        return EnvironmentFault(
            FailureKind.REPORTED_BY_COMMAND,
            f"the command reported a fault of its infrastructure: exit code {end.exit_code}",
            **evidence_of(end),
        )
    if end.exit_code == 0 and not end.timed_out:
        return None
    strain = host.machines.strain(name, ended.exec_id)
    return (
        _egress_lost(host, name, strain, end)
        or _killed_elsewhere(end)
        or _disk_failed(host, name, strain, end)
        or _stalled(spec, strain, end)
    )


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


def _egress_lost(
    host: HostPorts, name: str, strain: Strain, end: CommandEnd
) -> EnvironmentFault | None:
    # It may have ended long before anybody could collect its end.
    ended_ns = strain.began_boot_ns + end.duration_ns + STARTS_NS
    broken = lost_while(host.guest.egress_log(name), strain.began_boot_ns, ended_ns)
    if not broken:
        return None
    return EnvironmentFault(
        FailureKind.EGRESS_LOST,
        f"an allowed target could not be reached while the command ran: {broken[-1]['target']}",
        egress=broken[-8:],
        **evidence_of(end),
    )


def _killed_elsewhere(end: CommandEnd) -> EnvironmentFault | None:
    if not end.victim_elsewhere or end.victim_of_own_memory:
        return None
    return EnvironmentFault(
        FailureKind.GUEST_OUT_OF_MEMORY,
        "the machine's memory ran out, and a process outside of the command was killed",
        victim_elsewhere=True,
        victim_of_own_memory=False,
        **evidence_of(end),
    )


def _disk_failed(
    host: HostPorts, name: str, strain: Strain, end: CommandEnd
) -> EnvironmentFault | None:
    """The host's disk refused the machine a read or a write: the guest can only have told the command of it."""
    failed = [
        event.data
        for event in host.machines.events(name)
        if event.name == "BLOCK_IO_ERROR" and event.boot_ns >= strain.began_boot_ns
    ]
    if not failed:
        return None
    return EnvironmentFault(
        FailureKind.HOST_STALLED,
        "the host's disk failed a read or a write of the machine while the command ran",
        block_errors=failed[-8:],
        **evidence_of(end),
    )


def _stalled(spec: ExecSpec, strain: Strain, end: CommandEnd) -> EnvironmentFault | None:
    if not end.timed_out or not strain.stalled(spec.timeout_ns):
        return None
    return EnvironmentFault(
        FailureKind.HOST_STALLED,
        f"the command's time ran out, and its host took {strain.lost_ns / 1e9:.1f} s of it away",
        strain=strain.as_evidence(),
        limit_seconds=spec.timeout_ns / 1e9,
        **evidence_of(end),
    )
