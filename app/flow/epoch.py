"""The database was restored from a backup, and an epoch began: the machines of earlier ones are ended, and what their
rows believe is open is closed by what their host knows.

What ran since the backup has no row any more: it ends uncharged. What the rows believe is open may have ended long ago,
or run on: it ends now, is charged what it lived at most, and its fork is replaced where no command may have started.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import suppress

from app.domain.failure import Phase, failure
from app.domain.fork import EndReason
from app.domain.run import Claimed, ExecPurpose
from app.errors import EnvironmentFault, FailureKind, NotFound
from app.flow._claimed import close, fail, late_results_dropped, own_exec_id
from app.flow._heartbeat import beat
from app.flow._older import is_older, unknown
from app.flow._results import is_decided
from app.ports import HostPorts, Ports

__all__ = ["end_older", "settle_older", "stand_still", "unknown"]


def stand_still(ports: Ports, host: HostPorts, remembered: tuple[int, int]) -> None:
    """The database went back behind the epoch and beat that this host remembers: say so, and that the host is there;
    nothing else.
    """
    # A database from before this host had a row has no place for it to say so.
    with suppress(NotFound):
        beat(ports, host)
    ports.deployments.tell_ahead(host.host_id, remembered)


def end_older(ports: Ports, host: HostPorts, epoch: int) -> tuple[str, ...]:
    """End every machine of this host of an earlier epoch, whoever started it and whether a row knows it or not; which
    those were. Twice is safe.
    """
    now_ns = ports.clock.boot_ns()
    older = tuple(each.name for each in host.machines.live() if is_older(each, epoch, now_ns))
    for name in older:
        host.machines.kill(name)
    return older


def settle_older(
    ports: Ports, host: HostPorts, epoch: int, living: Callable[[], Container[str]] = frozenset
) -> int:
    """Close the attempts of this host that were opened in an earlier epoch; how many. Their machines are ended first.

    `living` are the claims of worker processes that are there, as in `recover.adopt`: each sees to its own.
    """
    older = [each for each in ports.attempts.held_by(host.host_id) if each.attempt.epoch < epoch]
    others = living() if older else ()
    closed = 0
    for found in older:
        name, before = found.attempt.attempt_id, found.attempt.claim
        if before != host.claim and before in others:
            continue
        host.machines.kill(name)
        claimed = ports.attempts.adopt(name, host.host_id, host.claim, of=before)
        if claimed is not None:
            with late_results_dropped():
                _settle(ports, host, claimed, epoch)
            closed += 1
    return closed


def _settle(ports: Ports, host: HostPorts, claimed: Claimed, epoch: int) -> None:
    name = claimed.attempt.attempt_id
    if is_decided(ports, name):
        ports.bells.collect(host.claim, name)
        return
    begun = host.machines.marked(name, own_exec_id(ExecPurpose.TASK, name))
    fault = EnvironmentFault(
        FailureKind.WORKER_LOST,
        "the database was restored from a backup: its machine was of an epoch before that, and is ended",
        epoch=epoch,
        began_in_epoch=claimed.attempt.epoch,
        known_here=name in host.machines.known(),
        command_begun=begun or claimed.attempt.intent,
    )
    if begun and not claimed.attempt.intent and not claimed.run.spec.rerun_started:
        # The row of its intent was lost with the others; the mark of it lies beside the machine.
        named = failure(fault, Phase.EXEC)
        then = claimed.fork.stop_asked or EndReason.ENVIRONMENT_FAILED
        close(ports, host, claimed, then, failed=named)
        return
    fail(ports, host, claimed, fault, Phase.COLLECT)
