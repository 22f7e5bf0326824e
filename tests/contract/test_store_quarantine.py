"""A host that breaks forks in a row is taken out of placement in the transaction that closes the last of them."""

from __future__ import annotations

import pytest

from app.domain.failure import Failure, Phase
from app.domain.fork import EndReason, ForkState
from app.domain.quarantine import FIRST_PAUSE_NS, Quarantine
from app.domain.run import Claimed
from app.errors import FailureKind, NotFound
from tests import builders as a
from tests.contract.rows import Rows

OTHER = "host1"
PAUSE_S = FIRST_PAUSE_NS // 1_000_000_000


def broken(kind: FailureKind = FailureKind.RESTORE_FAILED) -> Failure:
    return a.failed(kind, phase=Phase.RESTORE)


def break_forks(rows: Rows, count: int, failure: Failure | None = None) -> None:
    """As many forks, each failing once and for good."""
    rows.host()
    rows.start(count)
    rows.place()
    for _ in range(count):
        end(rows, rows.open(), failure or broken())


def end(rows: Rows, claimed: Claimed, failure: Failure) -> None:
    rows.close(claimed, 3, EndReason.ENVIRONMENT_FAILED, failure=failure)


def quarantine_of(rows: Rows, host_id: str = a.HOST) -> Quarantine | None:
    (found,) = [host for host in rows.store.hosts.list() if host.host_id == host_id]
    return found.quarantine


def beat(rows: Rows, *host_ids: str) -> None:
    for host_id in host_ids or (a.HOST,):
        rows.store.hosts.heartbeat(host_id, ())


def test_a_host_that_breaks_forks_in_a_row_gets_no_more(rows: Rows) -> None:
    break_forks(rows, 2)
    assert quarantine_of(rows) is None
    break_forks(rows, 1)
    found = quarantine_of(rows)
    assert found is not None
    assert found.kinds == (FailureKind.RESTORE_FAILED,)
    assert found.since_ns == rows.clock.wall_ns()
    rows.start(1)
    assert rows.place() == 0
    rows.host(OTHER)
    assert rows.place() == 1
    rows.check_laws()


def test_one_fork_that_fails_again_and_again_is_not_several(rows: Rows) -> None:
    rows.host()
    rows.start(1, environment_retries=9, budget_micros=10_000_000)
    for _ in range(5):
        assert rows.place() == 1  # by the fall-back: no other host could take it
        rows.close(rows.open(), 1, then=None, failure=broken())
    assert quarantine_of(rows) is None


def test_what_is_not_the_hosts_fault_does_not_count(rows: Rows) -> None:
    break_forks(rows, 2)
    break_forks(rows, 3, broken(FailureKind.SNAPSHOT_CORRUPT))
    break_forks(rows, 3, broken(FailureKind.WORKER_LOST))
    break_forks(rows, 3, a.failed())  # its guest was lost while a command ran
    assert quarantine_of(rows) is None
    break_forks(rows, 1)
    assert quarantine_of(rows) is not None


def test_a_fork_that_was_handed_over_wipes_out_what_was_before(rows: Rows) -> None:
    break_forks(rows, 2)
    rows.close(rows.ready(rows.started()), 5)
    break_forks(rows, 2)
    assert quarantine_of(rows) is None


def test_a_fork_that_was_handed_over_and_then_stalled_by_its_host_counts(rows: Rows) -> None:
    break_forks(rows, 2)
    stalled = a.failed(FailureKind.HOST_STALLED)
    end(rows, rows.ready(rows.started()), stalled)
    found = quarantine_of(rows)
    assert found is not None
    assert set(found.kinds) == {FailureKind.RESTORE_FAILED, FailureKind.HOST_STALLED}


def test_a_snapshot_that_fails_elsewhere_too_takes_no_second_host_out(rows: Rows) -> None:
    break_forks(rows, 3)
    assert quarantine_of(rows) is not None
    rows.host(OTHER)
    rows.start(3)
    rows.place()
    for _ in range(3):
        end(rows, rows.open(OTHER), broken())
    assert quarantine_of(rows, OTHER) is None


def test_queued_forks_are_taken_off_and_open_attempts_go_on(rows: Rows) -> None:
    rows.host()
    rows.start(6)
    rows.place()
    going_on = rows.open()
    for _ in range(3):
        end(rows, rows.open(), broken())
    assert rows.try_open() is None  # what is placed here is not begun any more
    assert rows.store.hosts.unassign_dead() == 2
    assert rows.store.hosts.unassign_dead() == 0
    rows.check_laws()
    rows.close(rows.ready(going_on), 9)
    assert rows.fork(going_on.fork.fork_id).state is ForkState.ENDED
    assert quarantine_of(rows) is not None  # it was handed over, but a self-test decides now


def test_a_host_that_was_shut_between_choice_and_assignment_gets_nothing(rows: Rows) -> None:
    rows.host()
    rows.start(2)
    hosts = rows.store.hosts.list()
    rows.store.hosts.quarantine(a.HOST, "its disk is being changed")
    assert rows.place_on(hosts) == 0


def test_a_self_test_is_due_after_a_pause_and_begun_by_one(rows: Rows) -> None:
    break_forks(rows, 3)
    hosts = rows.store.hosts
    assert hosts.begin_test(a.HOST) is None
    rows.clock.advance(PAUSE_S)
    begun = hosts.begin_test(a.HOST)
    assert begun is not None
    assert hosts.begin_test(a.HOST) is None
    assert not hosts.end_test(a.HOST, begun, "no first process", passed=False)
    found = quarantine_of(rows)
    assert found is not None
    assert found.last_test == "no first process"
    rows.clock.advance(2 * PAUSE_S - 1)
    assert hosts.begin_test(a.HOST) is None
    rows.clock.advance(1)
    again = hosts.begin_test(a.HOST)
    assert again is not None
    assert hosts.end_test(a.HOST, again, "sound", passed=True)
    assert quarantine_of(rows) is None
    beat(rows)
    rows.start(3)
    assert rows.place() == 3


def test_a_host_that_comes_back_and_breaks_again_waits_longer(rows: Rows) -> None:
    break_forks(rows, 3)
    rows.clock.advance(PAUSE_S)
    begun = rows.store.hosts.begin_test(a.HOST)
    assert begun is not None
    rows.store.hosts.end_test(a.HOST, begun, "sound", passed=True)
    beat(rows)
    break_forks(rows, 3)
    rows.clock.advance(PAUSE_S)
    assert rows.store.hosts.begin_test(a.HOST) is None
    rows.clock.advance(PAUSE_S)
    assert rows.store.hosts.begin_test(a.HOST) is not None


def test_an_operators_quarantine_is_ended_by_an_operator(rows: Rows) -> None:
    break_forks(rows, 3)
    rows.clock.advance(PAUSE_S)
    begun = rows.store.hosts.begin_test(a.HOST)
    assert begun is not None
    rows.store.hosts.quarantine(a.HOST, "its memory is being changed")
    assert not rows.store.hosts.end_test(a.HOST, begun, "sound", passed=True)
    found = quarantine_of(rows)
    assert found is not None
    assert (found.reason, found.by_operator) == ("its memory is being changed", True)
    rows.clock.advance(3600)
    assert rows.store.hosts.begin_test(a.HOST) is None
    assert rows.store.hosts.release(a.HOST)
    assert not rows.store.hosts.release(a.HOST)
    assert quarantine_of(rows) is None


def test_a_released_host_begins_anew(rows: Rows) -> None:
    break_forks(rows, 3)
    rows.store.hosts.release(a.HOST)
    break_forks(rows, 2)
    assert quarantine_of(rows) is None


def test_a_restarted_worker_does_not_end_a_quarantine(rows: Rows) -> None:
    break_forks(rows, 3)
    rows.host()
    assert quarantine_of(rows) is not None


def test_hosts_that_nobody_knows_are_named(rows: Rows) -> None:
    with pytest.raises(NotFound, match="host9"):
        rows.store.hosts.quarantine("host9", "")
    with pytest.raises(NotFound, match="host9"):
        rows.store.hosts.release("host9")
    assert rows.store.hosts.begin_test("host9") is None


def test_who_waits_too_long_reads_why_a_host_took_nothing(rows: Rows) -> None:
    break_forks(rows, 3)
    run = rows.start(1, queue_timeout_ns=60 * 1_000_000_000)
    rows.clock.advance(61)
    rows.expire_queued()
    (fork,) = rows.store.runs.forks(run.run_id)
    assert fork.failure is not None
    seen = fork.failure.evidence["hosts"]
    assert isinstance(seen, list)
    assert seen[0]["quarantine"] == "it broke 3 forks in a row: restore_failed"
