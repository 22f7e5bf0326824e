"""A host that the fleet ends: only an empty one, whoever comes first; and machines that went with their instance."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from app.domain.fork import EndReason, ForkState, Outcome
from app.domain.money import NS_PER_SECOND
from app.domain.placement import Host, Placement
from app.domain.run import Closing, Exec, ExecPurpose
from app.errors import FailureKind, NotFound
from tests import builders as a
from tests.contract.rows import Rows

GONE = "its instance has ended"


def host_of(rows: Rows, host_id: str = a.HOST) -> Host:
    (found,) = [host for host in rows.store.hosts.list() if host.host_id == host_id]
    return found


def test_an_empty_host_is_retired_and_gets_nothing_more(rows: Rows) -> None:
    rows.host()
    rows.start(2)
    seen = rows.store.hosts.list()
    assert rows.store.hosts.retire(a.HOST)
    assert rows.store.hosts.retire(a.HOST)
    assert host_of(rows).retiring
    assert rows.place() == 0
    assert rows.place_on(seen) == 0
    rows.host()  # its worker began anew
    assert host_of(rows).retiring
    rows.check_laws()


def test_a_fork_that_comes_first_keeps_its_host(rows: Rows) -> None:
    rows.host()
    rows.start(1)
    rows.place()
    assert not rows.store.hosts.retire(a.HOST)
    claimed = rows.open()
    assert not rows.store.hosts.retire(a.HOST)
    rows.close(claimed, 5)
    assert rows.store.hosts.retire(a.HOST)


def test_of_a_placer_and_the_fleet_at_once_one_wins(rows: Rows) -> None:
    """A host of its own for each round: it is retired and empty, or has the fork and stays, whoever is faster."""
    names = [f"host{number}" for number in range(2, 18)]
    for name in names:
        rows.host(name)
    rows.start(len(names))
    choices = [
        Placement(fork.fork_id, name, fork.shape, "")
        for name, fork in zip(names, rows.store.hosts.waiting(100), strict=True)
    ]
    start = threading.Barrier(2)

    def place() -> list[bool]:
        asked = (partial(rows.store.hosts.assign, (each,)) for each in choices)
        return [_after(start, each) for each in asked]

    def retire() -> list[bool]:
        return [_after(start, partial(rows.store.hosts.retire, name)) for name in names]

    with ThreadPoolExecutor(2) as pool:
        placed, retired = (done.result() for done in (pool.submit(place), pool.submit(retire)))
    assert [a != b for a, b in zip(placed, retired, strict=True)] == [True] * len(names)
    hosts = {host.host_id: host for host in rows.store.hosts.list()}
    assert [hosts[name].retiring for name in names] == retired
    rows.check_laws()


def _after(start: threading.Barrier, act: Callable[[], object]) -> bool:
    """Whether it did anything, begun at the same moment as the other."""
    start.wait(timeout=20)
    return bool(act())


def test_a_host_that_came_back_smaller_is_not_empty_before_it_is(rows: Rows) -> None:
    rows.host()
    rows.start(3)
    rows.place()
    held = [rows.open() for _ in range(3)]
    rows.host(slots=2, memory_mib=2 * 512, disk_gib=2 * 4)
    for claimed in held[:2]:
        rows.close(claimed, 5)
    assert not rows.store.hosts.retire(a.HOST)
    rows.close(held[2], 5)
    assert rows.store.hosts.retire(a.HOST)


def test_a_machine_of_our_own_is_let_end_first(rows: Rows) -> None:
    rows.host()
    assert rows.store.hosts.hold(a.HOST, "proof-1", a.SHAPE, 60 * NS_PER_SECOND)
    assert not rows.store.hosts.retire(a.HOST)
    rows.store.hosts.let_go("proof-1")
    assert rows.store.hosts.retire(a.HOST)


def test_a_host_with_the_only_copy_stays(rows: Rows) -> None:
    rows.store.hosts.register(a.fingerprint(), 4, fetches=False)
    rows.store.hosts.heartbeat(a.HOST, (), ("build_1",))
    assert not rows.store.hosts.retire(a.HOST)
    rows.store.hosts.heartbeat(a.HOST, (), ())
    assert rows.store.hosts.retire(a.HOST)


def test_the_host_of_a_candidate_stays_until_its_build_is_settled(rows: Rows) -> None:
    rows.host()
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    rows.place()
    claimed = rows.store.attempts.open(a.HOST, "w", "boot", 0, template.fork_id)
    assert claimed is not None
    closing = Closing(5 * NS_PER_SECOND, EndReason.COMMAND_PASSED)
    rows.close_as(claimed, closing)
    assert host_of(rows).free_slots == host_of(rows).slots
    assert not rows.store.hosts.retire(a.HOST)


def test_a_retirement_ends_with_a_new_boot_or_by_its_operator(rows: Rows) -> None:
    rows.host()
    rows.store.hosts.retire(a.HOST)
    assert rows.store.hosts.release(a.HOST) is False
    assert not host_of(rows).retiring
    rows.store.hosts.retire(a.HOST)
    rows.host(boot_id="the next")
    assert not host_of(rows).retiring
    with pytest.raises(NotFound, match="host9"):
        rows.store.hosts.retire("host9")


def test_a_machine_that_went_with_its_instance_is_charged_until_then_and_replaced(
    rows: Rows,
) -> None:
    claimed = rows.started()
    rows.ready(claimed)
    rows.clock.advance(20)
    closed = rows.store.attempts.close_gone(claimed.attempt.attempt_id, GONE)
    assert closed is not None
    fork = rows.fork(claimed.fork.fork_id)
    assert (fork.state, fork.host_id, fork.avoid_hosts) == (ForkState.QUEUED, None, (a.HOST,))
    assert fork.failure is not None
    assert fork.failure.kind is FailureKind.HOST_LOST
    assert rows.run(claimed.run.run_id).charged_micros == 20 * a.MICROS_PER_SECOND
    assert rows.store.attempts.close_gone(claimed.attempt.attempt_id, GONE) is None
    rows.check_laws()


def test_a_command_that_may_have_started_is_not_repeated_for_that(rows: Rows) -> None:
    claimed = rows.ready(rows.started())
    asked = Exec("exec_1", claimed.fork.fork_id, "", a.PROJECT, ExecPurpose.TASK, a.COMMAND)
    assert rows.store.execs.intend(claimed, asked) is not None
    rows.clock.advance(5)
    rows.store.attempts.close_gone(claimed.attempt.attempt_id, GONE)
    fork = rows.fork(claimed.fork.fork_id)
    assert fork.outcome is Outcome.ENV_FAILED
    assert fork.failure is not None
    assert fork.failure.kind is FailureKind.HOST_LOST
    rows.check_laws()


def test_it_is_never_charged_above_its_lease(rows: Rows) -> None:
    claimed = rows.started(budget_micros=30 * a.MICROS_PER_SECOND)
    rows.clock.advance(1000)
    rows.store.attempts.close_gone(claimed.attempt.attempt_id, GONE)
    assert rows.run(claimed.run.run_id).charged_micros == 30 * a.MICROS_PER_SECOND
    rows.check_laws()
