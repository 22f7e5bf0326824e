"""Hosts: room that is never below nothing, placement, silence, and the wait that has an end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from app.domain.fork import EndReason, Outcome
from app.domain.money import NS_PER_SECOND
from app.domain.placement import Placement
from app.domain.run import RunState
from app.errors import FailureKind, NotFound
from tests import builders as a
from tests.contract.rows import Rows


def test_a_host_is_listed_with_its_room_and_its_bundles(rows: Rows) -> None:
    rows.host(slots=5)
    rows.store.hosts.heartbeat(a.HOST, ("build_1",))
    (host,) = rows.store.hosts.list()
    assert host.fingerprint == a.fingerprint()
    assert (host.slots, host.free_slots, host.mounted) == (5, 5, ("build_1",))
    assert (host.free_memory_mib, host.free_disk_gib) == (16 * 512, 16 * 4)


def test_a_host_is_alive_by_its_heartbeat(rows: Rows) -> None:
    rows.host()
    rows.clock.advance(15)
    assert rows.store.hosts.list()[0].alive
    rows.clock.advance(1)
    assert not rows.store.hosts.list()[0].alive
    rows.store.hosts.heartbeat(a.HOST, ())
    assert rows.store.hosts.list()[0].alive
    rows.clock.advance(24 * 3600)
    assert rows.store.hosts.list() == ()
    with pytest.raises(NotFound):
        rows.store.hosts.heartbeat("host1", ())


def test_a_host_that_registers_again_keeps_what_is_reserved(rows: Rows) -> None:
    rows.started(3)
    rows.place()
    rows.host(slots=10, cpu_model="Skylake")
    (host,) = rows.store.hosts.list()
    assert host.fingerprint.cpu_model == "Skylake"
    assert (host.slots, host.free_slots, host.free_memory_mib) == (10, 7, 13 * 512)


def test_a_host_that_comes_back_smaller_shows_no_room_it_has_not(rows: Rows) -> None:
    claimed = rows.started(3)
    rows.host(slots=2, memory_mib=2 * 512, disk_gib=2 * 4)
    (host,) = rows.store.hosts.list()
    assert (host.free_slots, host.free_memory_mib, host.free_disk_gib) == (0, 0, 0)
    rows.store.runs.ask_stop(claimed.run.run_id, EndReason.CANCELLED)
    rows.close(claimed, 5, EndReason.CANCELLED)
    (host,) = rows.store.hosts.list()
    assert (host.free_slots, host.free_memory_mib, host.free_disk_gib) == (2, 2 * 512, 2 * 4)


def test_what_waits_is_listed_in_order_with_what_it_needs(rows: Rows) -> None:
    older = rows.start(2)
    rows.clock.advance(1)
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    waiting = rows.store.hosts.waiting(10)
    assert [each.run_id for each in waiting] == [older.run_id, older.run_id, run.run_id]
    assert [each.build_id for each in waiting] == [None, None, build.build_id]
    assert [each.restore_key for each in waiting] == [str(a.KEY), str(a.KEY), None]
    assert waiting[0].shape == a.SHAPE
    assert rows.store.hosts.waiting(1) == waiting[:1]


def test_room_is_reserved_in_full_and_never_twice(rows: Rows) -> None:
    rows.host(slots=3)
    rows.start(5)
    placements = tuple(
        Placement(each.fork_id, a.HOST, each.shape, "") for each in rows.store.hosts.waiting(10)
    )
    assert rows.store.hosts.assign(placements) == placements[:3]
    assert rows.store.hosts.assign(placements) == ()
    assert rows.store.hosts.list()[0].free_slots == 0
    rows.check_laws()
    rows.close(rows.open(), at_s=5)
    assert rows.store.hosts.assign(placements) == placements[3:4]


def test_a_choice_for_a_host_that_is_not_known_is_left_out(rows: Rows) -> None:
    rows.start()
    (waiting,) = rows.store.hosts.waiting(10)
    assert rows.store.hosts.assign((Placement(waiting.fork_id, "no", waiting.shape, ""),)) == ()
    assert rows.store.hosts.assign((Placement("fork_no", a.HOST, waiting.shape, ""),)) == ()


def test_a_fork_that_ended_meanwhile_is_not_placed(rows: Rows) -> None:
    rows.host()
    run = rows.start()
    (waiting,) = rows.store.hosts.waiting(10)
    rows.store.runs.ask_stop(run.run_id, EndReason.CANCELLED)
    assert rows.store.hosts.assign((Placement(waiting.fork_id, a.HOST, waiting.shape, ""),)) == ()


def test_many_placers_at_once_fill_a_host_exactly(rows: Rows) -> None:
    rows.host(slots=10)
    rows.host("host1", slots=10)
    rows.start(30)
    with ThreadPoolExecutor(6) as pool:
        placed = list(pool.map(lambda _: rows.place(), range(12)))
    assert sum(placed) == 20
    assert [host.free_slots for host in rows.store.hosts.list()] == [0, 0]


def test_placers_with_other_forks_share_the_room(rows: Rows) -> None:
    rows.host(slots=10)
    rows.start(24)
    choices = [
        Placement(each.fork_id, a.HOST, each.shape, "") for each in rows.store.hosts.waiting(24)
    ]
    start = threading.Barrier(8)

    def place(number: int) -> int:
        start.wait(timeout=20)
        return len(rows.store.hosts.assign(tuple(choices[3 * number : 3 * number + 3])))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(place, range(8))) == 10
    assert rows.store.hosts.list()[0].free_slots == 0


def test_what_waits_on_a_silent_host_is_placed_anew(rows: Rows) -> None:
    running = rows.started(3)
    rows.clock.advance(16)
    assert rows.store.hosts.unassign_dead() == 2
    assert rows.store.hosts.unassign_dead() == 0
    assert len(rows.store.hosts.waiting(10)) == 2
    assert rows.store.hosts.list()[0].free_slots == 15
    assert rows.fork(running.fork.fork_id).host_id == a.HOST
    rows.host("host1")
    assert rows.place() == 2


def test_placed_forks_are_counted_by_host_and_build(rows: Rows) -> None:
    rows.host()
    rows.start(2)
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    assert rows.store.hosts.placed() == ()
    rows.place()
    assert rows.store.hosts.placed() == ((a.HOST, "", 2), (a.HOST, build.build_id, 1))
    rows.open()
    assert rows.store.hosts.placed() == ((a.HOST, "", 1), (a.HOST, build.build_id, 1))


def test_waiting_too_long_is_a_failure_of_the_environment(rows: Rows) -> None:
    rows.host(slots=1)
    run = rows.start(3, queue_timeout_ns=60 * NS_PER_SECOND)
    rows.place()
    running = rows.open()
    patient = rows.start(1)
    rows.clock.advance(60)
    assert rows.expire_queued() == ()
    rows.clock.advance(1)
    closed = rows.expire_queued()
    assert [each.run_ended for each in closed] == [False]
    assert rows.expire_queued() == ()
    late = rows.store.runs.forks(run.run_id)[1:]
    assert {fork.outcome for fork in late} == {Outcome.ENV_FAILED}
    failure = late[0].failure
    assert failure is not None
    assert failure.kind is FailureKind.NO_CAPACITY
    assert failure.evidence["hosts"] == [
        {
            "host": a.HOST,
            "alive": False,
            "quarantine": None,
            "slots": 1,
            "free_slots": 0,
            "free_memory_mib": 15 * 512,
            "free_disk_gib": 15 * 4,
        }
    ]
    assert rows.run(patient.run_id).state is RunState.ACTIVE
    assert rows.close(running, 70).run_ended


def test_a_run_may_end_by_waiting(rows: Rows) -> None:
    run = rows.start(2, queue_timeout_ns=60 * NS_PER_SECOND)
    rows.clock.advance(61)
    closed = rows.expire_queued()
    assert [each.run_ended for each in closed] == [True]
    ended = rows.run(run.run_id)
    assert (ended.state, ended.pool_micros) == (RunState.ENDED, ended.budget_micros)


def test_a_replacement_waits_its_own_time(rows: Rows) -> None:
    claimed = rows.started(queue_timeout_ns=60 * NS_PER_SECOND)
    rows.clock.advance(50)
    rows.close(claimed, 50, then=None, failure=a.failed())
    rows.clock.advance(50)
    assert rows.expire_queued() == ()
    rows.clock.advance(11)
    assert len(rows.expire_queued()) == 1


def test_shapes_are_reserved_as_they_are(rows: Rows) -> None:
    rows.host(slots=16)
    big = replace(a.SHAPE, memory_mib=5 * 512)
    rows.start(4, fork_fields={"shape": big})
    assert rows.place() == 3
    assert rows.store.hosts.list()[0].free_memory_mib == 512
