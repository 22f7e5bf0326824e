"""The database goes away, or a worker dies, between any two steps of an end: nothing is lost, nothing done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from app.domain.fork import ForkState
from app.domain.ledger import START_WINDOW_NS
from app.domain.machine import Deadline
from app.domain.run import ExecState
from app.errors import Unavailable
from app.flow import collect, fork, recover
from app.flow._broken import PATIENCE_NS
from app.flow._claimed import PATIENCE_PAUSE_S
from app.ports import Attempts, Builds, Execs, Machines, Meters
from tests.flow.stage import Stage, sim, spec
from workers.recovery import Adoption

AWAY = Unavailable("database_away", "planted")


class Away:
    """A port whose named verbs find the database away, some times. `after`: what they did is done, and not told."""

    def __init__(self, port: object, *, after: bool = False, **times: int) -> None:
        self._port, self._after, self._left = port, after, Counter(times)

    def __getattr__(self, name: str) -> Any:
        act: Callable[..., object] = getattr(self._port, name)

        def met(*given: object, **named: object) -> object:
            if self._left[name] <= 0:
                return act(*given, **named)
            self._left[name] -= 1
            if self._after:
                act(*given, **named)
            raise AWAY

        return met


def test_an_end_waits_for_the_database_and_is_booked_as_it_was(suite: Stage) -> None:
    run_id = suite.start(spec("5s exit 3", count=1))
    suite.run_for(3)
    attempts_away(suite, close=20)
    page = suite.run_until_final(run_id)
    assert [(each["outcome"], each["exit_code"]) for each in page["forks"]] == [("failed", 3)]


def test_a_run_that_cannot_be_settled_keeps_nobodys_fork_from_its_place(suite: Stage) -> None:
    broken = suite.start(spec("1s exit 0", count=1))
    whole = suite.ports

    class Breaks:
        def __getattr__(self, name: str) -> Any:
            return getattr(whole.meters, name)

        def settle(self, run_id: str) -> object:
            if run_id == broken:
                raise ValueError("its purse has not so much")
            return whole.meters.settle(run_id)

    suite.ports = replace(whole, meters=cast(Meters, Breaks()))
    suite.run_for(5, billing=False)
    assert whole.meters.unsettled() == (broken,)
    other = suite.start(spec("1s exit 0", count=1))
    suite.run_for(5, billing=False)
    assert suite.report(other)["totals"]["passed"] == 1
    with pytest.raises(ExceptionGroup) as told:
        suite.tick()
    assert told.group_contains(ValueError, match="its purse has not so much")
    suite.ports = whole
    assert suite.run_until_final(broken)["totals"]["passed"] == 1


@pytest.mark.parametrize("grade", [None, "1s exit 0"])
def test_a_result_outlives_a_worker_that_died_between_saving_it_and_the_next_step(
    suite: Stage, grade: str | None
) -> None:
    given = spec("5s print done exit 0", count=1, grade=None if grade is None else sim(grade))
    run_id = suite.start(given)
    suite.run_for(3)
    with pytest.raises(KeyboardInterrupt):
        die_after_saving(suite, run_id)
    # The machine may be gone by then, with its journal.
    if grade is None:
        suite.host.machines.kill(attempt_of(suite, run_id))
    next_worker(suite)
    page = suite.run_until_final(run_id)
    assert page["totals"]["passed"] == 1
    assert page["environment_failures"] == []
    assert set(suite.world.starts.values()) == {1}


def test_a_database_that_stays_away_gives_its_caller_up(suite: Stage) -> None:
    run_id = suite.start(spec("5s exit 0", count=1))
    suite.run_for(3)
    suite.clock.advance(5)
    attempts_away(suite, close=10_000)
    before_ns = suite.clock.boot_ns()
    with pytest.raises(Unavailable):
        collect.collect(suite.ports, suite.host, attempt_of(suite, run_id))
    assert suite.clock.boot_ns() - before_ns < 2 * PATIENCE_NS
    attempts_away(suite)
    assert suite.run_until_final(run_id)["totals"]["passed"] == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("verb", ["checking", "checked", "ready"])
def test_a_bring_up_waits_for_the_database(suite: Stage, verb: str, after: bool) -> None:
    attempts_away(suite, after=after, **cast(Any, {verb: 3}))
    page = suite.run_until_final(suite.start(spec("5s exit 0", count=1)))
    assert page["totals"]["passed"] == 1
    assert page["environment_failures"] == []


def test_a_bring_up_that_could_not_be_saved_is_replaced(suite: Stage) -> None:
    attempts_away(suite, checked=int(PATIENCE_NS / 1e9 / PATIENCE_PAUSE_S) + 2)
    page = suite.run_until_final(suite.start(spec("5s exit 0", count=1)))
    assert page["totals"]["passed"] == 1
    assert [each["kind"] for each in page["environment_failures"]] == ["worker_lost"]
    assert page["environment_failures"][0]["replaced"]


def test_an_intent_whose_commit_was_not_told_is_carried_out(suite: Stage) -> None:
    away = Away(suite.ports.execs, after=True, intend=1)
    suite.ports = replace(suite.ports, execs=cast(Execs, away))
    page = suite.run_until_final(suite.start(spec("5s exit 0", count=1)))
    assert page["totals"]["passed"] == 1
    assert page["environment_failures"] == []
    assert set(suite.world.starts.values()) == {1}


def test_an_attempt_that_was_opened_and_never_told_is_given_up_once_nothing_can_start(
    suite: Stage,
) -> None:
    run_id = suite.start(spec("5s exit 0", count=1))
    ports = suite.ports
    attempts_away(suite, after=True, open=1)
    suite.ring_one(suite.bells.waiting.popleft())  # place
    suite.bells.waiting.clear()
    with pytest.raises(Unavailable):
        fork.advance(suite.ports, suite.host)
    suite.ports = ports
    recover.sweep(suite.ports, suite.host)
    assert suite.ports.runs.forks(run_id)[0].state is ForkState.RESTORING
    suite.clock.advance(START_WINDOW_NS / 1e9 + 1)
    recover.sweep(suite.ports, suite.host)
    page = suite.run_until_final(run_id)
    assert page["totals"]["passed"] == 1
    assert [each["kind"] for each in page["environment_failures"]] == ["worker_lost"]


def test_a_machine_that_starts_at_the_last_moment_is_not_given_up(suite: Stage) -> None:
    suite.start(spec("5s exit 0", count=1))
    suite.ring_one(suite.bells.waiting.popleft())  # place
    machines = suite.host.machines

    class Slow:
        """A list that was made before the machine, and is looked at when its window is over."""

        def __getattr__(self, name: str) -> Any:
            return getattr(machines, name)

        def known(self) -> tuple[str, ...]:
            listed = machines.known()
            restored(suite)
            suite.clock.advance(START_WINDOW_NS / 1e9 + 1)
            return listed

    recover.sweep(suite.ports, replace(suite.host, machines=cast(Machines, Slow())))
    (name,) = machines.known()
    assert machines.death(name) is None


def test_a_machine_that_another_process_still_serves_is_left_alone_and_adopted_later(
    suite: Stage,
) -> None:
    run_id = suite.start(spec("20s", count=2))
    suite.run_for(3)
    served = attempt_of(suite, run_id)
    busy = Busy(suite.host.machines, served)
    suite.hosts["host0"] = replace(suite.host, claim="host0/2", machines=cast(Machines, busy))
    adoption = Adoption(suite.ports, suite.host, frozenset)
    adoption.go_on()
    assert adoption.left == {served}
    suite.run_for(3)
    claims = {each.attempt.attempt_id: each.attempt.claim for each in held(suite)}
    assert claims.pop(served) == "host0/1"
    assert set(claims.values()) == {"host0/2"}
    adoption.go_on()
    assert adoption.left == {served}
    busy.names.clear()
    adoption.go_on()
    assert adoption.left == frozenset()
    page = suite.run_until_final(run_id)
    assert page["totals"]["passed"] == 2
    assert page["environment_failures"] == []


def test_a_machine_is_not_claimed_before_its_channels_can_be_taken(suite: Stage) -> None:
    """One that is ours without them would be ended for not answering, though it is well."""
    run_id = suite.start(spec(exec=sim("200s exit 3", timeout_s=600), count=1))
    suite.run_for(3)
    well, longer = suite.ports, int(PATIENCE_NS / 1e9 / PATIENCE_PAUSE_S) + 10
    suite.hosts["host0"] = replace(suite.host, claim="host0/2")
    suite.ports = replace(well, builds=cast(Builds, Away(well.builds, of_run=longer)))
    adoption = Adoption(suite.ports, suite.host, frozenset)
    with pytest.raises(Unavailable):
        adoption.go_on()
    (left,) = held(suite)
    assert left.attempt.claim == "host0/1"
    suite.ports = well
    adoption.go_on()
    (taken,) = held(suite)
    assert taken.attempt.claim == "host0/2"
    page = suite.run_until_final(run_id)
    assert [(each["outcome"], each["exit_code"]) for each in page["forks"]] == [("failed", 3)]


def test_what_a_worker_brought_up_when_it_died_is_called_its_loss(suite: Stage) -> None:
    run_id = suite.start(spec("5s exit 0", count=1, verify_each=True))
    suite.run_for(0.5, step=0.5)
    assert suite.ports.runs.forks(run_id)[0].state is ForkState.CHECKING
    suite.host.machines.kill(attempt_of(suite, run_id))
    next_worker(suite)
    page = suite.run_until_final(run_id)
    assert page["totals"]["passed"] == 1
    assert [each["kind"] for each in page["environment_failures"]] == ["worker_lost"]


class Busy:
    """Machines of which some have a monitor that another process holds."""

    def __init__(self, machines: Machines, *names: str) -> None:
        self._machines, self.names = machines, set(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machines, name)

    def recover(self, name: str) -> object:
        if name in self.names:
            raise Unavailable("machine_busy", "planted")
        return self._machines.recover(name)


def restored(suite: Stage) -> None:
    """A machine runs, and its worker has not come further."""
    opened_ns = suite.clock.boot_ns()
    how = (suite.host.claim, suite.clock.boot_id(), opened_ns)
    claimed = suite.ports.attempts.open("host0", *how, None)
    assert claimed is not None
    bundle = suite.host.bundles.open(claimed.fork.bundle_id)
    deadline = Deadline(claimed.attempt.deadline_boot_ns, opened_ns + START_WINDOW_NS)
    suite.host.machines.restore(claimed.attempt.attempt_id, bundle, deadline)


def attempts_away(suite: Stage, *, after: bool = False, **times: int) -> None:
    away = Away(suite.stores.attempts, after=after, **times)
    suite.ports = replace(suite.ports, attempts=cast(Attempts, away))


def die_after_saving(suite: Stage, run_id: str) -> None:
    """The worker dies as soon as the result of the task's command is in its row."""
    execs = suite.ports.execs

    class Dying(Away):
        def finish(self, *given: Any) -> bool:
            done = execs.finish(*given)
            saved = execs.find(f"task_{attempt_of(suite, run_id)}")
            if saved is not None and saved.state is ExecState.ENDED:
                raise KeyboardInterrupt
            return done

    suite.ports = replace(suite.ports, execs=cast(Execs, Dying(execs)))
    try:
        suite.run_until_final(run_id)
    finally:
        suite.ports = replace(suite.ports, execs=execs)
        suite.bells.waiting.clear()


def next_worker(suite: Stage) -> None:
    suite.hosts["host0"] = replace(suite.host, claim="host0/2")
    recover.adopt(suite.ports, suite.host)


def attempt_of(suite: Stage, run_id: str) -> str:
    return suite.ports.runs.forks(run_id)[0].attempt_id or ""


def held(suite: Stage) -> tuple[Any, ...]:
    return suite.ports.attempts.held_by("host0")
