"""Room that machines of our own hold: no fork is placed into it, and a crash keeps it no longer than they may live."""

from __future__ import annotations

from app.domain.machine import Shape
from app.domain.money import NS_PER_SECOND
from tests import builders as a
from tests.contract.rows import Rows

MINUTE_NS = 60 * NS_PER_SECOND


def hold(rows: Rows, name: str = "trial-1", shape: Shape = a.SHAPE) -> bool:
    return rows.store.hosts.hold(a.HOST, name, shape, MINUTE_NS)


def test_no_fork_is_placed_into_a_trials_room(rows: Rows) -> None:
    rows.host(slots=2)
    rows.start(2)
    assert hold(rows)
    rows.check_laws()
    assert rows.place() == 1
    assert not hold(rows, "trial-2")
    for _ in range(2):
        rows.store.hosts.let_go("trial-1")
    assert rows.place() == 1


def test_a_host_without_room_for_it_holds_none(rows: Rows) -> None:
    assert not hold(rows)  # a host that nobody knows
    rows.host()
    assert not hold(rows, shape=Shape(1, 17 * 512, 4))
    assert not hold(rows, shape=Shape(1, 512, 17 * 4))
    assert hold(rows, shape=Shape(1, 16 * 512, 16 * 4))


def test_the_room_of_one_that_nobody_let_go_is_free_when_its_time_is_over(rows: Rows) -> None:
    rows.host(slots=1)
    rows.start(1)
    assert hold(rows)
    rows.clock.advance(60)
    rows.store.hosts.heartbeat(a.HOST, ())
    rows.store.hosts.unassign_dead()
    assert rows.place() == 0
    rows.clock.advance(1)
    rows.store.hosts.unassign_dead()
    assert rows.place() == 1


def test_it_is_held_still_when_its_host_registers_again_and_is_no_leak(rows: Rows) -> None:
    rows.host(slots=2)
    assert hold(rows)
    rows.host(slots=2)
    (host,) = rows.store.hosts.list()
    assert host.free_slots == 1
    assert rows.store.leaks.found() == ()
