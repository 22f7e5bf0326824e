"""Money at the store: budgets add up, leases are funded, nothing is charged twice or above its lease."""

from __future__ import annotations

import pytest

from app.domain.failure import Phase
from app.domain.fork import EndReason, ForkState, Outcome
from app.domain.ledger import CLOSE_MARGIN_NS, START_WINDOW_NS
from app.domain.money import NS_PER_SECOND
from app.domain.run import Claimed, Closing, Exec, ExecPurpose, RunState
from app.errors import FailureKind, PromigenceError, StaleClaim
from infra.store.tables import ledger
from tests import builders as a
from tests.contract.mirror import Mirror
from tests.contract.rows import Rows

SECOND = a.MICROS_PER_SECOND
STEPS = 300
# What has happened in a random history that is worth comparing.
MUST_HAPPEN = {"replaced", "ended", "kept", "stale", "shared", "closed by time"}
WINDOWS_S = (START_WINDOW_NS + CLOSE_MARGIN_NS) / NS_PER_SECOND


def test_a_lease_is_what_its_grant_funds(rows: Rows) -> None:
    claimed = rows.started(budget_micros=40 * SECOND)
    assert claimed.attempt.lease_ns == 40 * NS_PER_SECOND
    assert claimed.fork.state is ForkState.RESTORING


def test_a_lease_is_never_longer_than_the_worst_attempt(rows: Rows) -> None:
    claimed = rows.started(fork_fields={"worst_attempt_ns": 30 * NS_PER_SECOND})
    assert claimed.attempt.lease_ns == 30 * NS_PER_SECOND


def test_an_attempt_is_charged_what_it_lived(rows: Rows) -> None:
    claimed = rows.ready(rows.started(), at_s=2)
    closed = rows.close(claimed, at_s=7.5)
    run = rows.run(claimed.run.run_id)
    (line,) = rows.store.runs.attempts(run.run_id)
    assert (line.verification_micros, line.tasks_micros) == (2 * SECOND, 5.5 * SECOND)
    assert (run.charged_micros, run.granted_micros) == (7.5 * SECOND, 0)
    assert closed.run_ended
    assert run.state is RunState.ENDED


def test_a_late_kill_is_charged_up_to_the_lease(rows: Rows) -> None:
    claimed = rows.started(budget_micros=40 * SECOND)
    rows.close(claimed, at_s=45, then=EndReason.RUN_EXHAUSTED)
    assert rows.run(claimed.run.run_id).charged_micros == 40 * SECOND
    assert rows.fork(claimed.fork.fork_id).outcome is Outcome.CAPPED


def test_a_machine_that_went_down_with_its_host_is_charged_no_more_than_its_age(rows: Rows) -> None:
    first, second = rows.started(2, budget_micros=80 * SECOND), rows.open()
    rows.clock.advance(25)
    for claimed, boot_id in ((first, "the next boot"), (second, second.attempt.boot_id)):
        closing = Closing(3 * NS_PER_SECOND, EndReason.ENVIRONMENT_FAILED, boot_id=boot_id)
        rows.close_as(claimed, closing)
    lines = {line.attempt.attempt_id: line for line in rows.store.runs.attempts(first.run.run_id)}
    assert lines[first.attempt.attempt_id].environment_micros == 25 * SECOND
    assert lines[second.attempt.attempt_id].environment_micros == 3 * SECOND


def test_an_environment_failure_is_charged_as_such_and_replaced(rows: Rows) -> None:
    first = rows.ready(rows.started(), at_s=2)
    rows.close(first, at_s=5, then=None, failure=a.failed())
    waiting = rows.fork(first.fork.fork_id)
    assert (waiting.state, waiting.host_id, waiting.attempts) == (ForkState.QUEUED, None, 1)
    assert waiting.failure == a.failed()
    assert waiting.grant_micros == 95 * SECOND
    rows.place()
    second = rows.open(at_s=10)
    assert second.attempt.number == 2
    rows.close(rows.ready(second, at_s=11), at_s=14)
    lines = rows.store.runs.attempts(first.run.run_id)
    assert [line.environment_micros for line in lines] == [5 * SECOND, 0]
    assert [line.total_micros for line in lines] == [5 * SECOND, 4 * SECOND]
    assert rows.fork(first.fork.fork_id).failure is None


def test_a_replacement_is_topped_up_from_the_pool(rows: Rows) -> None:
    other, claimed = _two_of_a_tight_budget(rows)
    rows.close(other, at_s=1)  # leaves 14 s in the pool
    rows.close(claimed, at_s=12, then=None, failure=a.failed())
    assert rows.fork(claimed.fork.fork_id).grant_micros == 10 * SECOND
    assert rows.run(claimed.run.run_id).pool_micros == 7 * SECOND


def test_a_replacement_that_cannot_be_funded_ends_with_its_failure(rows: Rows) -> None:
    other, claimed = _two_of_a_tight_budget(rows)
    rows.close(claimed, at_s=12, then=None, failure=a.failed())
    fork = rows.fork(claimed.fork.fork_id)
    assert (fork.outcome, fork.failure) == (Outcome.ENV_FAILED, a.failed())
    assert rows.close(other, at_s=1).run_ended


def test_a_fork_that_cannot_fund_its_smallest_lease_gets_no_machine(rows: Rows) -> None:
    rows.host()
    run = rows.start(1, budget_micros=9 * SECOND)
    rows.place()
    assert rows.try_open() is None
    (fork,) = rows.store.runs.forks(run.run_id)
    assert (fork.outcome, fork.attempts) == (Outcome.CAPPED, 0)
    assert rows.run(run.run_id).state is RunState.ENDED


def test_what_an_unfunded_fork_gives_back_may_fund_the_next(rows: Rows) -> None:
    rows.host()
    run = rows.start(2, budget_micros=18 * SECOND)
    rows.place()
    claimed = rows.open()
    assert (claimed.fork.index, claimed.attempt.lease_ns) == (1, 10 * NS_PER_SECOND)
    assert rows.run(run.run_id).pool_micros == 8 * SECOND


def test_an_attempt_is_closed_once(rows: Rows) -> None:
    claimed = rows.started()
    rows.close(claimed, at_s=5)
    with pytest.raises(StaleClaim):
        rows.close(claimed, at_s=9)
    assert rows.run(claimed.run.run_id).charged_micros == 5 * SECOND


def test_what_a_fork_left_is_shared_out_and_extends_leases(rows: Rows) -> None:
    first, second = _two_of_a_tight_budget(rows)
    rows.close(first, at_s=5)
    run_id = second.run.run_id
    assert rows.store.meters.sharable() == (run_id,)
    assert rows.store.meters.share(run_id) == 10 * SECOND
    present = rows.store.attempts.get(second.attempt.attempt_id)
    assert present is not None
    assert present.attempt.lease_ns == 25 * NS_PER_SECOND
    assert rows.store.meters.share(run_id) == 0
    assert rows.store.meters.sharable() == ()


def test_a_machine_whose_lease_is_over_gets_no_more_money(rows: Rows) -> None:
    first, second = _two_of_a_tight_budget(rows)
    rows.close(first, at_s=5)
    rows.clock.advance(15)
    assert rows.store.meters.share(second.run.run_id) == 0


def test_a_machine_of_a_silent_host_gets_no_more_money_until_it_is_heard_again(rows: Rows) -> None:
    first = rows.started(2, budget_micros=80 * SECOND)
    second = rows.open()
    rows.close(first, at_s=5)
    rows.clock.advance(16)
    assert rows.store.meters.share(second.run.run_id) == 0
    rows.store.hosts.heartbeat(a.HOST, ())
    rows.clock.advance(15)
    assert rows.store.meters.share(second.run.run_id) == 35 * SECOND


def test_what_was_lost_with_a_silent_host_is_charged_as_it_was_granted(rows: Rows) -> None:
    lost = rows.started(2, budget_micros=60 * SECOND)
    rows.host("host1")
    rows.store.hosts.heartbeat("host1", ())
    other = rows.open()
    rows.close(other, at_s=5)
    for _ in range(3):
        rows.clock.advance(26)
        rows.store.meters.share(lost.run.run_id)
    rows.close_by_time(lost.attempt.attempt_id, "silent")
    assert rows.run(lost.run.run_id).charged_micros == 35 * SECOND


def test_money_is_shared_as_often_as_there_is_some(rows: Rows) -> None:
    first, second = rows.started(3, budget_micros=45 * SECOND), rows.open()
    run_id, third = first.run.run_id, rows.open()
    for ended in (first, second):
        rows.close(ended, at_s=5)
        assert rows.store.meters.share(run_id) > 0
    assert rows.fork(third.fork.fork_id).grant_micros == 35 * SECOND


def test_no_entry_is_booked_again_later(rows: Rows) -> None:
    claimed = rows.started()
    rows.close(claimed, at_s=5)
    with rows.store.database.read() as at:
        entry = dict(at.execute(ledger.select().limit(1)).mappings().one())
    with pytest.raises(PromigenceError) as caught, rows.store.database.write() as at:
        at.execute(ledger.insert().values(entry | {"booked_ns": entry["booked_ns"] + 1}))
    assert caught.value.code == "constraint_refused"


def test_accruing_shows_and_moves_nothing(rows: Rows) -> None:
    claimed = rows.ready(rows.started(budget_micros=40 * SECOND))
    rows.clock.advance(10)
    for _ in range(3):
        assert rows.store.meters.accrue() == 1
    (line,) = rows.store.runs.attempts(claimed.run.run_id)
    assert (line.verification_micros, line.tasks_micros) == (0, 10 * SECOND)
    rows.clock.advance(1000)
    rows.store.meters.accrue()
    (line,) = rows.store.runs.attempts(claimed.run.run_id)
    assert line.total_micros == 40 * SECOND
    assert rows.run(claimed.run.run_id).charged_micros == 0
    rows.close(claimed, at_s=11)
    (line,) = rows.store.runs.attempts(claimed.run.run_id)
    assert (line.verification_micros, line.tasks_micros) == (2 * SECOND, 9 * SECOND)


def test_nobody_closes_by_time_before_the_keeper_must_have_killed(rows: Rows) -> None:
    claimed = rows.started(budget_micros=40 * SECOND)
    attempt_id = claimed.attempt.attempt_id
    rows.clock.advance(40 + WINDOWS_S)
    assert rows.store.attempts.overdue() == ()
    assert rows.close_by_time(attempt_id, "silent") is None
    rows.clock.advance(1)
    assert [each.attempt_id for each in rows.store.attempts.overdue()] == [attempt_id]
    closed = rows.close_by_time(attempt_id, "silent")
    assert closed is not None
    assert rows.close_by_time(attempt_id, "silent") is None
    assert rows.store.attempts.overdue() == ()


def test_closing_by_time_charges_the_whole_lease_as_lost_with_its_host(rows: Rows) -> None:
    claimed = rows.started(budget_micros=40 * SECOND)
    rows.clock.advance(41 + WINDOWS_S)
    closed = rows.close_by_time(claimed.attempt.attempt_id, "silent")
    fork = rows.fork(claimed.fork.fork_id)
    assert closed is not None
    assert closed.run_ended  # its whole grant is gone: nothing funds a replacement
    assert fork.outcome is Outcome.ENV_FAILED
    assert fork.failure is not None
    assert fork.failure.kind is FailureKind.HOST_LOST
    (line,) = rows.store.runs.attempts(claimed.run.run_id)
    assert line.environment_micros == line.total_micros == 40 * SECOND
    with pytest.raises(StaleClaim):
        rows.close(claimed, at_s=3)


@pytest.mark.parametrize(
    ("purposes", "phase"),
    [
        ((), Phase.EXEC),
        ((ExecPurpose.TASK,), Phase.EXEC),
        ((ExecPurpose.TASK, ExecPurpose.GRADE), Phase.GRADE),
    ],
)
def test_a_host_is_lost_in_the_phase_that_its_rows_say(
    rows: Rows, purposes: tuple[ExecPurpose, ...], phase: Phase
) -> None:
    claimed = rows.ready(rows.started(budget_micros=40 * SECOND))
    for purpose in purposes:
        ids = (purpose.value, claimed.fork.fork_id, claimed.attempt.attempt_id, a.PROJECT)
        asked = Exec(*ids, purpose, a.COMMAND)
        assert rows.store.execs.intend(claimed, asked) is not None
    rows.clock.advance(41 + WINDOWS_S)
    assert rows.close_by_time(claimed.attempt.attempt_id, "silent") is not None
    failure = rows.fork(claimed.fork.fork_id).failure
    assert failure is not None
    assert (failure.kind, failure.phase) == (FailureKind.HOST_LOST, phase)


def test_a_fork_lost_with_its_host_waits_for_another_host(rows: Rows) -> None:
    claimed = rows.started(fork_fields={"worst_attempt_ns": 20 * NS_PER_SECOND})
    rows.clock.advance(21 + WINDOWS_S)
    rows.close_by_time(claimed.attempt.attempt_id, "silent")
    fork = rows.fork(claimed.fork.fork_id)
    assert (fork.state, fork.avoid_hosts) == (ForkState.QUEUED, (a.HOST,))


def test_forks_that_join_are_granted_from_the_pool(rows: Rows) -> None:
    claimed = _template(rows)
    more = tuple(a.fork(claimed.run.run_id, n, grant_micros=200 * SECOND) for n in range(3))
    closing = _closing(at_s=100)
    closed = rows.close_as(claimed, closing, more)
    run = rows.run(claimed.run.run_id)
    assert not closed.run_ended
    assert (run.granted_micros, run.charged_micros) == (600 * SECOND, 100 * SECOND)
    assert len(rows.store.runs.forks(run.run_id)) == 3


def test_forks_that_the_pool_cannot_fund_do_not_join(rows: Rows) -> None:
    claimed = _template(rows)
    more = (a.fork(claimed.run.run_id, 0, grant_micros=901 * SECOND),)
    with pytest.raises(PromigenceError) as caught:
        rows.close_as(claimed, _closing(at_s=100), more)
    assert caught.value.code == "pool_exhausted"
    present = rows.store.attempts.get(claimed.attempt.attempt_id)
    assert present is not None
    assert present.attempt.closed_boot_ns is None


def test_a_template_gets_nothing_of_what_the_forks_that_verify_it_are_promised(rows: Rows) -> None:
    claimed = _template(rows)
    assert rows.store.meters.sharable() == ()
    assert rows.store.meters.share(claimed.run.run_id) == 0


def test_nobody_joins_a_run_that_is_to_stop(rows: Rows) -> None:
    claimed = _template(rows)
    rows.store.runs.ask_stop(claimed.run.run_id, EndReason.CANCELLED)
    more = (a.fork(claimed.run.run_id, 0, grant_micros=200 * SECOND),)
    closed = rows.close_as(claimed, _closing(at_s=100), more)
    assert closed.run_ended
    assert rows.store.runs.forks(claimed.run.run_id) == ()
    assert rows.fork(claimed.fork.fork_id).outcome is Outcome.CANCELLED
    assert rows.run(claimed.run.run_id).charged_micros == 100 * SECOND


@pytest.mark.parametrize("seed", [5, 6, 8])  # in each of these all that must happen does
def test_any_interleaving_is_what_the_pure_ledger_says(rows: Rows, seed: int) -> None:
    rows.host(slots=6)
    mirror = Mirror(rows, seed)
    for _ in range(STEPS):
        mirror.step()
        rows.check_laws()
    assert all(mirror.reached[name] for name in MUST_HAPPEN), mirror.reached


def _two_of_a_tight_budget(rows: Rows) -> tuple[Claimed, Claimed]:
    """Two machines, each with a grant of 15 s."""
    first = rows.started(2, budget_micros=30 * SECOND)
    return first, rows.open()


def _template(rows: Rows) -> Claimed:
    rows.host()
    rows.store.builds.start(*a.build(), None)
    (waiting,) = rows.store.hosts.waiting(10)
    rows.place()
    claimed = rows.store.attempts.open(a.HOST, "worker1", "boot", 0, waiting.fork_id)
    assert claimed is not None
    return claimed


def _closing(at_s: float) -> Closing:
    return Closing(int(at_s * NS_PER_SECOND), EndReason.COMMAND_PASSED)
