"""Worker processes: heard of, drained, taken for dead; and what a host that is left by them takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.domain.money import NS_PER_SECOND
from app.domain.worker import CLAIM_NS, Worker
from app.errors import NotFound, StaleClaim
from tests import builders as a
from tests.contract.rows import Rows

OLD = Worker("claim_old", a.HOST, "boot", 11, 1 << 40, "1.0")
NEW = replace(OLD, claim="claim_new", pid=12)


def test_a_process_is_on_its_host_from_its_beginning_to_its_end(rows: Rows) -> None:
    rows.host()
    rows.store.workers.begin(OLD)
    rows.clock.advance(1)
    rows.store.workers.begin(NEW)
    aged = replace(OLD, heartbeat_age_ns=NS_PER_SECOND)
    assert rows.store.workers.on(a.HOST) == (aged, NEW)
    assert rows.store.workers.on("host9") == ()
    rows.store.workers.end(OLD.claim)
    rows.store.workers.end(OLD.claim)
    assert rows.store.workers.claims() == {NEW.claim}


def test_a_process_of_a_host_that_nobody_knows_is_refused(rows: Rows) -> None:
    with pytest.raises(NotFound):
        rows.store.workers.begin(OLD)


def test_claims_hold_as_long_as_their_process_is_heard_of(rows: Rows) -> None:
    rows.host()
    rows.store.workers.begin(OLD)
    rows.clock.advance(CLAIM_NS / NS_PER_SECOND)
    assert not rows.store.workers.on(a.HOST)[0].is_silent
    rows.clock.advance(1)
    assert rows.store.workers.on(a.HOST)[0].is_silent
    assert not rows.store.workers.beat(OLD.claim)
    assert not rows.store.workers.on(a.HOST)[0].is_silent


def test_a_process_that_was_taken_for_dead_learns_it_at_its_next_heartbeat(rows: Rows) -> None:
    rows.host()
    rows.store.workers.begin(OLD)
    rows.store.workers.end(OLD.claim)
    with pytest.raises(StaleClaim):
        rows.store.workers.beat(OLD.claim)


def test_who_begins_after_a_drain_is_not_asked(rows: Rows) -> None:
    rows.host()
    rows.store.workers.begin(OLD)
    assert rows.store.workers.drain(a.HOST) == (replace(OLD, draining=True),)
    rows.store.workers.begin(NEW)
    assert rows.store.workers.beat(OLD.claim)
    assert not rows.store.workers.beat(NEW.claim)


def test_a_host_drains_while_no_process_of_it_takes_anything_new(rows: Rows) -> None:
    rows.host()
    assert not _drains(rows)
    rows.store.workers.begin(OLD)
    assert not _drains(rows)
    rows.store.workers.drain(a.HOST)
    assert _drains(rows)
    rows.store.workers.begin(NEW)
    assert not _drains(rows)
    rows.store.workers.end(OLD.claim)
    assert not _drains(rows)


def test_a_silent_process_neither_keeps_its_host_open_nor_shut(rows: Rows) -> None:
    rows.host()
    rows.store.workers.begin(OLD)
    rows.store.workers.drain(a.HOST)
    rows.clock.advance(CLAIM_NS / NS_PER_SECOND + 1)
    rows.store.hosts.heartbeat(a.HOST, ())
    assert not _drains(rows)


def test_what_waits_on_a_host_that_drains_is_placed_elsewhere(rows: Rows) -> None:
    rows.host()
    rows.store.workers.begin(OLD)
    rows.start(2)
    assert rows.place() == 2
    assert rows.store.hosts.unassign_dead() == 0
    rows.store.workers.drain(a.HOST)
    assert rows.store.hosts.unassign_dead() == 2
    assert rows.place() == 0
    rows.host("host2")
    assert rows.place() == 2


def test_two_processes_of_one_host_reserve_its_room_once(rows: Rows) -> None:
    claimed = rows.started(3)
    rows.store.workers.begin(OLD)
    rows.place()
    rows.host()
    rows.store.workers.begin(NEW)
    (host,) = rows.store.hosts.list()
    assert (host.free_slots, host.free_memory_mib) == (13, 13 * 512)
    rows.close(claimed, 5)
    rows.host()
    (host,) = rows.store.hosts.list()
    assert (host.free_slots, host.free_memory_mib) == (14, 14 * 512)


def test_a_machine_is_adopted_from_the_process_that_was_found_dead_and_from_no_other(
    rows: Rows,
) -> None:
    attempt = rows.started(1).attempt
    adopt = rows.store.attempts.adopt
    assert adopt(attempt.attempt_id, a.HOST, "first", of=attempt.claim) is not None
    assert adopt(attempt.attempt_id, a.HOST, "second", of=attempt.claim) is None
    held = rows.store.attempts.get(attempt.attempt_id)
    assert held is not None
    assert held.attempt.claim == "first"


def _drains(rows: Rows) -> bool:
    (host,) = rows.store.hosts.list()
    return host.draining
