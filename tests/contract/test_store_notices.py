"""A host that the cloud takes back: it gets nothing more, what waits on it waits elsewhere, what runs there goes on."""

from __future__ import annotations

import pytest

from app.domain.event import EventKind
from app.domain.fork import EndReason, ForkState
from app.domain.instant import instant
from app.domain.money import NS_PER_SECOND
from app.domain.placement import Host
from app.domain.run import Closing
from app.domain.spot import Notice
from app.errors import NotFound
from tests import builders as a
from tests.contract.rows import Rows

NOTICE = Notice("terminate", 120 * NS_PER_SECOND)
OTHER = "host1"


def host_of(rows: Rows, host_id: str = a.HOST) -> Host:
    (found,) = [host for host in rows.store.hosts.list() if host.host_id == host_id]
    return found


def kinds(rows: Rows, run_id: str) -> list[EventKind]:
    events, _ = rows.store.runs.events(a.PROJECT, run_id, 0, 500)
    return [event.kind for event in events]


def test_a_notice_sends_what_waits_elsewhere_and_lets_what_runs_go_on(rows: Rows) -> None:
    running = rows.started(3)
    noticed_ns = rows.clock.wall_ns()
    assert rows.store.hosts.give_notice(a.HOST, NOTICE)
    host = host_of(rows)
    assert host.gone_at_ns == noticed_ns + NOTICE.in_ns
    assert rows.store.hosts.leaving() == {host.host_id: host.gone_at_ns}
    assert not host.takes_forks
    assert rows.fork(running.fork.fork_id).state is ForkState.RESTORING
    assert rows.try_open() is None
    assert rows.store.hosts.unassign_dead() == 2
    assert host_of(rows).free_slots == host.slots - 1
    assert rows.place() == 0
    rows.host(OTHER)
    assert rows.place() == 2
    events, _ = rows.store.runs.events(a.PROJECT, running.run.run_id, 0, 500)
    (told,) = [event for event in events if event.kind is EventKind.HOST_LEAVING]
    assert told.fork_id == running.fork.fork_id
    assert told.data == {"gone_at": instant(host.gone_at_ns or 0), "action": "terminate"}
    assert kinds(rows, running.run.run_id).count(EventKind.UNPLACED) == 2
    rows.ready(running)
    rows.check_laws()
    rows.check_events()


def test_the_same_notice_again_changes_nothing_and_another_time_is_another_notice(
    rows: Rows,
) -> None:
    running = rows.started()
    assert rows.store.hosts.give_notice(a.HOST, NOTICE)
    gone_at_ns = host_of(rows).gone_at_ns
    rows.clock.advance(5)
    assert not rows.store.hosts.give_notice(a.HOST, Notice("terminate", 116 * NS_PER_SECOND))
    assert host_of(rows).gone_at_ns == gone_at_ns
    assert rows.store.hosts.give_notice(a.HOST, Notice("stop", 30 * NS_PER_SECOND))
    assert host_of(rows).gone_at_ns == rows.clock.wall_ns() + 30 * NS_PER_SECOND
    assert kinds(rows, running.run.run_id).count(EventKind.HOST_LEAVING) == 2


def test_a_notice_that_is_withdrawn_is_undone(rows: Rows) -> None:
    running = rows.started(2)
    assert not rows.store.hosts.withdraw_notice(a.HOST)
    rows.store.hosts.give_notice(a.HOST, NOTICE)
    assert rows.store.hosts.withdraw_notice(a.HOST)
    assert not rows.store.hosts.withdraw_notice(a.HOST)
    assert host_of(rows).gone_at_ns is None
    assert rows.try_open() is not None
    assert kinds(rows, running.run.run_id).count(EventKind.HOST_STAYING) == 1
    rows.check_events()


def test_a_place_that_was_chosen_before_the_notice_is_not_given(rows: Rows) -> None:
    rows.host()
    rows.start(2)
    seen = rows.store.hosts.list()
    rows.store.hosts.give_notice(a.HOST, NOTICE)
    assert rows.place_on(seen) == 0
    rows.check_laws()


def test_a_notice_is_of_one_boot(rows: Rows) -> None:
    rows.host()
    rows.store.hosts.give_notice(a.HOST, NOTICE)
    rows.host()  # its worker began anew: the instance is the same, and is taken back
    assert host_of(rows).gone_at_ns is not None
    rows.host(boot_id="the next")
    assert host_of(rows).gone_at_ns is None


def test_nobody_takes_back_what_is_not_there(rows: Rows) -> None:
    with pytest.raises(NotFound, match="host9"):
        rows.store.hosts.give_notice("host9", NOTICE)
    with pytest.raises(NotFound, match="host9"):
        rows.store.hosts.withdraw_notice("host9")


def test_a_host_says_where_it_is_and_what_it_has(rows: Rows) -> None:
    rows.store.hosts.register(a.fingerprint(), 4, zone="us-east-1b", fetches=False)
    rows.store.hosts.heartbeat(a.HOST, ("build_1",), ("build_1", "build_2"))
    host = host_of(rows)
    assert (host.zone, host.fetches, host.holds) == ("us-east-1b", False, ("build_1", "build_2"))
    rows.host()
    assert (host_of(rows).zone, host_of(rows).fetches) == (None, True)


def test_forks_of_a_candidate_wait_for_the_host_that_has_it(rows: Rows) -> None:
    rows.host()
    rows.host(OTHER)
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    rows.place()
    holder = rows.fork(template.fork_id).host_id
    assert holder is not None
    claimed = rows.store.attempts.open(holder, "worker1", f"boot-of-{holder}", 0, template.fork_id)
    assert claimed is not None
    verifying = tuple(a.fork(run.run_id, index, grant_micros=1) for index in (0, 1))
    closing = Closing(5 * NS_PER_SECOND, EndReason.COMMAND_PASSED)
    rows.close_as(claimed, closing, verifying)
    waiting = rows.store.hosts.waiting(10)
    assert [each.held_by for each in waiting] == [holder, holder]
    assert [each.build_id for each in waiting] == [None, None]
    rows.store.hosts.give_notice(holder, NOTICE)
    assert rows.place() == 0
    rows.store.hosts.withdraw_notice(holder)
    assert rows.place() == 2
    assert {rows.fork(fork.fork_id).host_id for fork in verifying} == {holder}
