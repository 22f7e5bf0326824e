"""The rows as they are counted for those who watch: what is live, and how long what waits has waited."""

from __future__ import annotations

import pytest

from app.domain.census import Census, HostStanding
from app.domain.event import Event, EventKind
from app.domain.fork import EndReason, ForkState
from app.domain.health import LATE_NS, LATELY_NS, Recent
from app.domain.money import NS_PER_SECOND
from app.domain.run import Exec, ExecPurpose, Run
from infra.fakes.clock import ManualClock
from infra.store import Stores, create_store
from infra.store.events import of_run, tell
from tests import builders as a
from tests.contract.rows import Rows


def test_an_empty_deployment(rows: Rows) -> None:
    assert rows.store.census.take() == Census()


def test_what_is_live_is_counted_and_what_has_ended_is_not(rows: Rows) -> None:
    ready = rows.ready(rows.started(3))
    taken = rows.store.census.take()
    assert taken.forks == {ForkState.QUEUED: 2, ForkState.READY: 1}
    assert (taken.runs, taken.machines) == (1, 1)
    assert taken.hosts == {HostStanding.ALIVE: 1}
    assert 0 < taken.free_slots < taken.slots
    rows.close(ready, 5)
    after = rows.store.census.take()
    assert (after.forks, after.machines) == ({ForkState.QUEUED: 2}, 0)


def test_the_age_of_what_waits_longest(rows: Rows) -> None:
    rows.host()
    rows.start(2)
    rows.clock.advance(10)
    rows.start(hold_ns=600 * NS_PER_SECOND)
    assert rows.store.census.take().unplaced_age_ns == 10 * NS_PER_SECOND
    rows.place()
    assert rows.store.census.take().unplaced_age_ns == 0


def test_a_command_waits_until_a_worker_takes_it(rows: Rows) -> None:
    ready = rows.ready(rows.started(hold_ns=600 * NS_PER_SECOND))
    asked = Exec("e1", ready.fork.fork_id, "", a.PROJECT, ExecPurpose.HELD, a.COMMAND)
    rows.store.execs.request(asked)
    rows.clock.advance(3)
    assert rows.store.census.take().queued_exec_age_ns == 3 * NS_PER_SECOND
    rows.store.execs.intend(ready, asked)
    assert rows.store.census.take().queued_exec_age_ns == 0


def test_a_host_is_counted_once_and_gives_slots_only_while_it_takes_forks(rows: Rows) -> None:
    rows.host("host0")
    rows.host("host1")
    rows.store.hosts.quarantine("host1", "its operator looks into it")
    taken = rows.store.census.take()
    assert taken.hosts == {HostStanding.ALIVE: 1, HostStanding.QUARANTINED: 1}
    assert taken.free_slots * 2 == taken.slots
    rows.clock.advance(60)
    silent = rows.store.census.take()
    assert (silent.hosts, silent.free_slots) == ({HostStanding.LOST: 2}, 0)


def test_what_ended_of_late(rows: Rows) -> None:
    """A fork counts once, by how it ended; one that was replaced has not ended; and what is long ago is not of late."""
    rows.host()
    rows.start(4)
    rows.place()
    passed, failed, replaced, late = (rows.ready(rows.open()) for _ in range(4))
    assert rows.store.census.recent(LATELY_NS) == Recent(vcpus=4 * passed.fork.shape.vcpus)
    rows.close(passed, 5)
    rows.close(failed, 5, EndReason.ENVIRONMENT_FAILED, a.failed())
    rows.close(replaced, 5, None, a.failed())
    rows.close(late, 5, late_ns=LATE_NS + 1)
    assert rows.store.census.recent(LATELY_NS) == Recent(3, 1, 1, 0)
    rows.clock.advance(LATELY_NS / NS_PER_SECOND + 1)
    assert rows.store.census.recent(LATELY_NS) == Recent()


class Undone(Exception):
    """A transaction ends here and nothing of it stays."""


def test_events_are_heard_once_they_are_committed(url: str) -> None:
    """And nothing of a transaction that was undone, though its connection is used again."""
    heard: list[Event] = []
    clock = ManualClock()
    store = create_store(url, key_secret=b"k", now_ns=clock.wall_ns, heard=heard.extend)
    store.migrate()
    rows = Rows(store, clock)
    rows.host()
    run = rows.start()
    assert [each.kind for each in heard] == [EventKind.RUN_STARTED]
    with pytest.raises(Undone):
        _tell_and_undo(store, run)
    assert len(heard) == 1
    rows.place()
    rows.close(rows.ready(rows.open()), 5, None, a.failed())
    kinds = [each.kind for each in heard]
    assert kinds.count(EventKind.ATTEMPT_FAILED) == kinds.count(EventKind.REPLACED) == 1
    assert EventKind.RUN_ENDED not in kinds
    assert [each.number for each in heard] == list(range(1, len(heard) + 1))
    store.close()


def _tell_and_undo(store: Stores, run: Run) -> None:
    with store.database.write() as at:
        tell(at, [of_run(EventKind.RUN_ENDED, run)])
        raise Undone
