"""The end of an attempt: its life is charged, its room given back, and its fork ends or waits for another machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import Connection, func, literal, select, update

from app.domain import ledger
from app.domain.event import Event, EventKind
from app.domain.failure import HOST_FAULTS, Failure, Phase, failure
from app.domain.fork import EndReason, ForkState, move
from app.domain.ledger import Settled, Split
from app.domain.money import NS_PER_SECOND
from app.domain.run import (
    Attempt,
    Claimed,
    Closed,
    Closing,
    ExecPurpose,
    ExecResult,
    ExecState,
    Fork,
    Result,
    Role,
    Run,
)
from app.errors import EnvironmentFault, FailureKind
from infra.store import quarantine
from infra.store.ending import (
    end_of,
    ended,
)
from infra.store.events import of_fork, of_run, tell
from infra.store.fence import held
from infra.store.keeping import standing
from infra.store.money import Entry, book
from infra.store.room import give_back
from infra.store.rows import find_attempt, insert_forks, lock_forks, lock_run, save
from infra.store.saved_results import decided
from infra.store.schema import LedgerKind
from infra.store.tables import attempts, execs, forks, is_unfinished

PHASES = {
    ForkState.RESTORING: Phase.RESTORE,
    ForkState.CHECKING: Phase.CONTRACT,
    ForkState.READY: Phase.EXEC,
    ForkState.RUNNING: Phase.EXEC,
}


@dataclass(frozen=True, slots=True)
class Ending:
    """An attempt that ends now, with its fork and run, all locked."""

    run: Run
    fork: Fork
    attempt: Attempt
    now_ns: int


def close(
    at: Connection, claimed: Claimed, closing: Closing, more_forks: tuple[Fork, ...], now_ns: int
) -> Closed:
    """`Attempts.close`, in the caller's transaction."""
    run = lock_run(at, claimed.run.run_id)
    fork, attempt = held(at, claimed)
    measured = _on_one_boot(at, attempt, closing, now_ns)
    if more_forks and fork.stop_asked is not None:
        # The wish was made to its whole run, and those that would join now were not there to hear it.
        measured, more_forks = replace(measured, then=fork.stop_asked), ()
    return _close(at, Ending(run, fork, attempt, now_ns), measured, more_forks)


def close_by_time(
    at: Connection, attempt_id: str, message: str, now_ns: int, *, gone: bool = False
) -> Closed | None:
    """`Attempts.close_by_time`, or with `gone` `Attempts.close_gone`, in the caller's transaction."""
    seen = find_attempt(at, attempt_id)
    if seen is None or seen.closed_boot_ns is not None:
        return None
    run = lock_run(at, seen.run_id)
    (fork,) = lock_forks(at, forks.c.fork_id == seen.fork_id)
    attempt = find_attempt(at, attempt_id, lock=True)
    if attempt is None or attempt.closed_boot_ns is not None:
        return None
    age_ns = now_ns - _opened_ns(at, attempt_id)
    if gone:
        # Its host is no more, so it lived no longer than to now; the charge is never above its lease.
        ended_boot_ns = min(attempt.opened_boot_ns + max(0, age_ns), attempt.deadline_boot_ns)
    elif ledger.may_close_by_time(age_ns, attempt.lease_ns):
        ended_boot_ns = attempt.deadline_boot_ns
    else:
        return None
    ending = Ending(run, fork, attempt, now_ns)
    saved = decided(at, run, attempt)
    if saved is not None:
        reason, result = _unless_stopped(fork, *saved)
        return _close(at, ending, Closing(ended_boot_ns, reason, result=result), ())
    lost = _host_lost(at, ending, message, age_ns)
    return _close(at, ending, Closing(ended_boot_ns, _after_loss(ending), failure=lost), ())


def _unless_stopped(fork: Fork, reason: EndReason, result: Result) -> tuple[EndReason, Result]:
    """A wish to stop stands, and nothing was lost by then; but what its run's rule came too late for has ended."""
    wish = fork.stop_asked
    if wish is None or wish is EndReason.STOPPED_BY_RULE:
        return reason, result
    return wish, Result()


def _on_one_boot(at: Connection, attempt: Attempt, closing: Closing, now_ns: int) -> Closing:
    """The closing with a reading that can be compared with the attempt's.

    Readings of two boots of a host cannot: the machine lived no longer than its age by the database's clock then, since
    the host went down after the one reading and came up before the other.
    """
    if closing.boot_id in (None, attempt.boot_id):
        return closing
    age_ns = max(0, now_ns - _opened_ns(at, attempt.attempt_id))
    return replace(closing, closed_boot_ns=attempt.opened_boot_ns + age_ns)


def _opened_ns(at: Connection, attempt_id: str) -> int:
    opened = select(attempts.c.opened_ns).where(attempts.c.attempt_id == attempt_id)
    return int(at.execute(opened).scalar_one())


def _host_lost(at: Connection, ending: Ending, message: str, age_ns: int) -> Failure:
    fault = EnvironmentFault(
        FailureKind.HOST_LOST,
        message,
        host=ending.attempt.host_id,
        age_seconds=age_ns / NS_PER_SECOND,
        lease_seconds=ending.attempt.lease_ns / NS_PER_SECOND,
    )
    return failure(fault, _phase(at, ending), command_may_have_started=ending.attempt.intent)


def _phase(at: Connection, ending: Ending) -> Phase:
    grade = select(execs.c.exec_id).where(
        execs.c.attempt_id == ending.attempt.attempt_id, execs.c.purpose == ExecPurpose.GRADE
    )
    graded = ending.fork.state is ForkState.RUNNING and at.execute(grade).first() is not None
    return Phase.GRADE if graded else PHASES[ending.fork.state]


def _after_loss(ending: Ending) -> EndReason | None:
    if ending.fork.stop_asked is not None:
        return ending.fork.stop_asked
    again = ending.attempt.number <= ending.run.spec.environment_retries
    if ending.fork.role is Role.FORK and again:
        return None
    return EndReason.ENVIRONMENT_FAILED


def _close(
    at: Connection, ending: Ending, closing: Closing, more_forks: tuple[Fork, ...]
) -> Closed:
    lost_by, closing = closing.failure, standing(ending.fork, closing)
    reason = _reason(ending, closing)
    split = _charge(ending, closing, reason)
    settled = _settle(ending, split, replaced=reason is None)
    run = book(at, ending.run, _entries(ending, settled), ending.now_ns)
    if settled.goes_on:
        fork = _queued_again(ending, closing, settled)
    else:
        fork = _ended(ending, closing, reason or EndReason.ENVIRONMENT_FAILED)
    save(at, forks, "fork_id", ending.fork, fork)
    _save_attempt(at, ending, closing, split)
    if reason is EndReason.COMMAND_SHUT_DOWN:
        _end_by_shutdown(at, ending.attempt, closing.result)
    lost = _lose_execs(at, ending.attempt, lost_by)
    tell(at, _told(ending, closing, fork))
    _join(at, run, ending, more_forks)
    give_back(at, [ending.fork])
    # Where it was placed is locked by the former, after all hosts before it.
    quarantine.count(at, ending.fork, ending.attempt, closing.failure, ending.now_ns)
    return Closed(fork.state, lost)


def _reason(ending: Ending, closing: Closing) -> EndReason | None:
    """Why the fork ends; None if it may go on with another machine, for all that its rows say now."""
    if closing.then is not None:
        return closing.then
    if ending.fork.stop_asked is not None:
        return ending.fork.stop_asked
    if ending.attempt.intent and not ending.run.spec.rerun_started:
        return EndReason.ENVIRONMENT_FAILED
    return None


def _charge(ending: Ending, closing: Closing, reason: EndReason | None) -> Split:
    attempt = ending.attempt
    ready_ns = attempt.ready_boot_ns
    return ledger.charge(
        closing.closed_boot_ns - attempt.opened_boot_ns,
        attempt.lease_ns,
        None if ready_ns is None else ready_ns - attempt.opened_boot_ns,
        attempt.micros_per_hour,
        failed=ledger.is_environments(reason, failed=closing.failure is not None),
    )


def _settle(ending: Ending, split: Split, *, replaced: bool) -> Settled:
    fork = ending.fork
    return ledger.settle(
        split,
        fork.grant_micros,
        fork.worst_micros,
        fork.smallest_micros,
        ending.run.pool_micros,
        replaced=replaced,
    )


def _entries(ending: Ending, settled: Settled) -> list[Entry]:
    attempt_id = ending.attempt.attempt_id
    return [
        Entry(attempt_id, LedgerKind.CHARGE, settled.charged),
        Entry(attempt_id, LedgerKind.TOP_UP, settled.topped_up),
        Entry(ending.fork.fork_id, LedgerKind.RETURN, settled.returned),
    ]


def _queued_again(ending: Ending, closing: Closing, settled: Settled) -> Fork:
    fork, host_id = ending.fork, ending.attempt.host_id
    faulty = closing.failure is not None and closing.failure.kind in HOST_FAULTS
    avoid = (*fork.avoid_hosts, host_id) if faulty else fork.avoid_hosts
    return replace(
        fork,
        state=move(fork.state, ForkState.QUEUED),
        host_id=None,
        avoid_hosts=tuple(dict.fromkeys(avoid)),
        attempt_id=None,
        grant_micros=settled.grant_micros,
        worst_micros=settled.worst_micros,
        checks=closing.checks or fork.checks,
        failure=closing.failure,
        queued_ns=ending.now_ns,
    )


def _ended(ending: Ending, closing: Closing, reason: EndReason) -> Fork:
    fork = ended(ending.fork, reason, ending.now_ns)
    return replace(
        fork,
        result=_result(ending.fork, closing, reason),
        checks=closing.checks or fork.checks,
        failure=closing.failure,
    )


def _result(fork: Fork, closing: Closing, reason: EndReason) -> Result:
    """A release's reward was kept with the wish; whoever obeys it need not repeat it."""
    result = closing.result
    if reason is fork.stop_asked and result.reward is None:
        return replace(result, reward=fork.result.reward)
    return result


def _save_attempt(at: Connection, ending: Ending, closing: Closing, split: Split) -> None:
    new = replace(
        ending.attempt,
        closed_boot_ns=closing.closed_boot_ns,
        charged_micros=split.total_micros,
        verification_micros=split.verification_micros,
        late_ns=max(0, closing.late_ns),
        failure=closing.failure,
    )
    save(
        at,
        attempts,
        "attempt_id",
        ending.attempt,
        new,
        tasks_micros=split.tasks_micros,
        environment_micros=split.environment_micros,
        console=closing.console,
        closed_ns=ending.now_ns,
    )


def _end_by_shutdown(at: Connection, attempt: Attempt, result: Result) -> None:
    """The run's own command that ended its machine has ended, and is not lost; only what it printed went with that."""
    ended = ExecResult(truncated=True, duration_ns=result.duration_ns)
    own = execs.c.purpose.in_([ExecPurpose.TASK, ExecPurpose.GRADE])
    at.execute(
        update(execs)
        .where(execs.c.attempt_id == attempt.attempt_id, is_unfinished, own)
        .values(
            state=ExecState.ENDED,
            result=func.coalesce(execs.c.result, literal(ended, execs.c.result.type)),
        )
    )


def _lose_execs(at: Connection, attempt: Attempt, failed: Failure | None) -> tuple[str, ...]:
    unfinished = select(execs.c.exec_id).where(
        execs.c.attempt_id == attempt.attempt_id, is_unfinished
    )
    lost = tuple(at.execute(unfinished.order_by(execs.c.asked_ns, execs.c.exec_id)).scalars())
    if lost:
        at.execute(
            update(execs)
            .where(execs.c.exec_id.in_(lost))
            .values(state=ExecState.LOST, failure=failed)
        )
    return lost


def _told(ending: Ending, closing: Closing, fork: Fork) -> list[Event]:
    """What the closing is to whoever reads the run: the failure if there was one, and what became of the fork."""
    before, attempt, told = ending.fork, ending.attempt, []
    if closing.failure is not None:
        kind, failed = closing.failure.kind, closing.failure.as_dict()
        told.append(of_fork(EventKind.ATTEMPT_FAILED, before, reason=kind, failure=failed))
    if fork.state is ForkState.ENDED:
        told.append(end_of(fork, seconds=fork.result.duration_ns / NS_PER_SECOND))
    else:
        named = of_fork(EventKind.REPLACED, before, attempt=attempt.number)
        told.append(replace(named, host_id=None, attempt_id=None))
    return told


def _join(at: Connection, run: Run, ending: Ending, more_forks: tuple[Fork, ...]) -> None:
    """Forks that go on with what the attempt made; their grants come from the pool."""
    move = ledger.join(run.pool_micros, (fork.grant_micros for fork in more_forks))
    insert_forks(at, more_forks, ending.now_ns)
    book(at, run, [Entry(ending.attempt.attempt_id, LedgerKind.GRANT, move)], ending.now_ns)
    if more_forks:
        tell(at, [of_run(EventKind.FORKS_JOINED, run, forks=len(more_forks))])
