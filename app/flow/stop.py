"""Obey a wish to stop, and make one: a run that is cancelled."""

from __future__ import annotations

from app.domain.fork import EndReason
from app.domain.run import Claimed, ExecPurpose, Result
from app.errors import EnvironmentFault
from app.flow._claimed import close, late_results_dropped, own_exec_id
from app.ports import HostPorts, Ports


def cancel(ports: Ports, project_id: str, run_id: str) -> None:
    """Ask every fork of a run to stop. Twice is safe. Raises NotFound."""
    run = ports.runs.get(project_id, run_id)
    for attempt in ports.runs.ask_stop(run.run_id, EndReason.CANCELLED):
        ports.bells.stop(attempt.claim, attempt.attempt_id)
    ports.bells.place()


def stop(ports: Ports, host: HostPorts, attempt_id: str) -> None:
    """End the machine of a fork that is asked to stop; the wish is the reason of its end."""
    claimed = ports.attempts.get(attempt_id)
    if claimed is None or claimed.attempt.claim != host.claim:
        return
    if claimed.attempt.closed_boot_ns is not None or claimed.fork.stop_asked is None:
        return
    if _ended_by_itself(ports, host, claimed):
        ports.bells.collect(host.claim, attempt_id)
        return
    with late_results_dropped():
        result = Result(reward=claimed.fork.result.reward)
        close(ports, host, claimed, claimed.fork.stop_asked, result=result)


def _ended_by_itself(ports: Ports, host: HostPorts, claimed: Claimed) -> bool:
    """Whether the command that decides has ended before the run's rule could stop it: then its own end counts."""
    fork, spec = claimed.fork, claimed.run.spec
    if fork.stop_asked is not EndReason.STOPPED_BY_RULE or fork.kept is not None:
        return False
    purpose = ExecPurpose.TASK if spec.grade is None else ExecPurpose.GRADE
    decides = ports.execs.find(own_exec_id(purpose, claimed.attempt.attempt_id))
    if decides is None or decides.result is not None:
        return decides is not None
    try:
        return host.guest.end(claimed.attempt.attempt_id, decides.exec_id) is not None
    except EnvironmentFault:
        return False
