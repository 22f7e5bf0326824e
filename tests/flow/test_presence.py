"""A worker process that drains: it claims nothing new, stays for what it holds, and ends when that has ended."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import cast

import pytest

from infra.queue import CeleryBells
from tests.flow.stage import Stage, spec
from workers.gate import Gate
from workers.presence import REPLACED, Presence, counted
from workers.tasks import Workbench, bring_up
from workers.watch import Ringer


class Ended(BaseException):
    """The process, with its exit code."""


@pytest.fixture
def bench(suite: Stage) -> Workbench:
    bells = cast(CeleryBells, suite.bells)
    ringer = Ringer(suite.bells, suite.host.claim)
    return Workbench(suite.ports, suite.host, bells, ringer, Gate(1), Gate(1))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that this process sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr("workers.presence.os.kill", lambda pid, number: sent.append((pid, number)))
    return sent


def begun(bench: Workbench) -> Presence:
    made = Presence(bench)
    made.begin()
    return made


def test_a_process_is_known_by_its_own_number(suite: Stage, bench: Workbench) -> None:
    begun(bench).beat()
    (worker,) = suite.ports.workers.on("host0")
    assert (worker.claim, worker.pid) == (suite.host.claim, os.getpid())
    assert not bench.draining.is_set()


def test_it_stays_for_what_it_holds_and_claims_nothing_more(
    suite: Stage, bench: Workbench, told: list[tuple[int, int]]
) -> None:
    here, stopped = begun(bench), []
    here.on_drain(lambda: stopped.append("queues"))
    run_id = suite.start(spec("20s exit 0", count=1))
    suite.run_for(3)
    suite.ports.workers.drain("host0")
    for _ in range(2):
        here.beat()
    assert stopped == ["queues"]
    waiting = suite.start(spec("1s exit 0", count=1))
    bring_up(bench)
    assert [each.attempts for each in suite.ports.runs.forks(waiting)] == [0]
    assert told == []
    assert suite.ports.hosts.list()[0].draining
    suite.run_until_final(run_id)
    here.beat()
    assert told == [(os.getpid(), signal.SIGTERM)]


def test_who_was_let_in_before_the_drain_is_waited_for(
    suite: Stage, bench: Workbench, told: list[tuple[int, int]]
) -> None:
    here = begun(bench)
    suite.ports.workers.drain("host0")

    def inside() -> None:
        here.beat()
        assert told == []

    assert bench.forks.run(inside)
    here.beat()
    assert told == [(os.getpid(), signal.SIGTERM)]


def test_a_candidate_that_is_being_stored_is_waited_for(
    suite: Stage, bench: Workbench, told: list[tuple[int, int]]
) -> None:
    here, begun_it, let_go = begun(bench), threading.Event(), threading.Event()

    def store() -> None:
        begun_it.set()
        assert let_go.wait(10)

    assert bench.settling.begin("build_1", store)
    assert begun_it.wait(10)
    suite.ports.workers.drain("host0")
    here.beat()
    assert told == []
    let_go.set()
    for each in threading.enumerate():
        if each.name == "build_1":
            each.join(10)
    here.beat()
    assert told == [(os.getpid(), signal.SIGTERM)]


def test_a_drain_that_was_asked_for_before_the_queues_were_read_gives_them_up_at_once(
    suite: Stage, bench: Workbench, told: list[tuple[int, int]]
) -> None:
    here, stopped = begun(bench), []
    suite.ports.workers.drain("host0")
    here.beat()
    here.on_drain(lambda: stopped.append("queues"))
    assert stopped == ["queues"]


def test_a_process_that_ends_sends_itself_no_second_signal(
    suite: Stage, bench: Workbench, told: list[tuple[int, int]]
) -> None:
    here = begun(bench)
    suite.ports.workers.drain("host0")
    bench.stopping.set()
    here.beat()
    assert told == []


def test_a_process_that_was_taken_for_dead_ends_itself(
    suite: Stage, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = begun(bench)
    suite.ports.workers.end(suite.host.claim)
    monkeypatch.setattr("workers.presence.os._exit", _ends)
    with pytest.raises(Ended, match=str(REPLACED)):
        here.beat()


def test_a_row_of_a_process_goes_with_it_whatever_ended_it(suite: Stage, bench: Workbench) -> None:
    with suppress(ZeroDivisionError), counted(suite.ports, suite.host.claim):
        begun(bench)
        assert suite.ports.workers.claims() == {suite.host.claim}
        raise ZeroDivisionError
    assert suite.ports.workers.claims() == frozenset()


def _ends(code: int) -> None:
    raise Ended(str(code))
