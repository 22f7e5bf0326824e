"""A run that stops itself: its environment failed so large a share of its forks that the rest is not worth it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from app.domain.event import EventKind
from app.domain.machine import DeathCause
from app.domain.run import RunSpec, StopWhen
from app.errors import FailureKind
from tests.flow.stage import PROJECT, Stage, spec


def strict(text: str = "60s exit 0", count: int = 10, share: float = 0.2, **more: Any) -> RunSpec:
    """A step none of whose forks is replaced."""
    rule = StopWhen(share)
    return spec(text, count=count, environment_retries=0, stop_when=rule, **more)


def fail_forks(suite: Stage, count: int) -> None:
    for _ in range(count):
        suite.world.fault("wake", FailureKind.BARRIER_FAILED)


def reasons(page: dict[str, Any]) -> Counter[str]:
    return Counter(fork["reason"] for fork in page["forks"])


def kinds(suite: Stage, run_id: str) -> Counter[EventKind]:
    told, final = suite.ports.runs.events(PROJECT, run_id, 0, 1000)
    assert final
    return Counter(event.kind for event in told)


def test_the_share_stops_all_others(suite: Stage) -> None:
    fail_forks(suite, 2)
    run_id = suite.start(strict())
    page = suite.run_until_final(run_id)
    assert page["totals"]["env_failed"] == 2
    assert page["totals"]["cancelled"] == 8
    assert reasons(page) == {"environment_failed": 2, "stopped_by_rule": 8}
    stopped = page["stopped"]
    assert stopped["stop_when"] == {"env_failed_share": 0.2}
    assert (stopped["env_failed"], stopped["forks"]) == (2, 8)
    assert kinds(suite, run_id)[EventKind.RUN_STOPPED] == 1
    assert {fork["reward"] for fork in page["forks"]} == {None}


def test_below_the_share_nothing_stops(suite: Stage) -> None:
    fail_forks(suite, 1)
    run_id = suite.start(strict("1s exit 0"))
    page = suite.run_until_final(run_id)
    assert page["stopped"] is None
    assert reasons(page) == {"environment_failed": 1, "command_passed": 9}
    assert EventKind.RUN_STOPPED not in kinds(suite, run_id)


def test_without_a_rule_nothing_stops(suite: Stage) -> None:
    fail_forks(suite, 2)
    page = suite.run_until_final(suite.start(spec(count=3, environment_retries=0)))
    assert page["stopped"] is None
    assert reasons(page) == {"environment_failed": 2, "command_passed": 1}


def test_a_replaced_fork_has_not_failed(suite: Stage) -> None:
    fail_forks(suite, 2)
    page = suite.run_until_final(suite.start(spec(count=3, stop_when=StopWhen(0.1))))
    assert page["stopped"] is None
    assert page["totals"]["passed"] == 3
    assert len(page["environment_failures"]) == 2


def test_forks_that_wait_end_at_once(suite: Stage) -> None:
    run_id = suite.start(strict(count=200, share=0.01))
    fail_forks(suite, 2)
    suite.tick()
    page = suite.report(run_id)
    waiting = [fork for fork in page["forks"] if fork["attempts"] == 0]
    assert len(waiting) >= 100
    assert {fork["reason"] for fork in waiting} == {"stopped_by_rule"}
    assert suite.run_until_final(run_id)["stopped"]["forks"] == 198


def test_the_last_that_waits_ends_its_run(suite: Stage) -> None:
    """A share that is reached in the queue: no host ever had room."""
    suite.ports.projects.set_limits(PROJECT, {"max_forks": 0})
    timeout_ns = 60 * 1_000_000_000
    run_id = suite.start(strict(count=3, share=1.0, queue_timeout_ns=timeout_ns))
    suite.clock.advance(61)
    page = suite.run_until_final(run_id)
    assert reasons(page) == {"environment_failed": 3}
    assert (page["stopped"]["env_failed"], page["stopped"]["forks"]) == (3, 0)


def test_lost_bells_stop_nobody_less(suite: Stage) -> None:
    run_id = suite.start(strict())
    suite.ring()
    for fork in suite.ports.runs.forks(run_id)[:2]:
        assert fork.attempt_id
        suite.world.die(fork.attempt_id, DeathCause.SIGNAL, 9)
        suite.bells.collect(suite.host.claim, fork.attempt_id)
    while not any(bell.task == "stop" for bell in suite.bells.waiting):
        suite.ring_one(suite.bells.waiting.popleft())
    suite.bells.waiting.clear()
    assert reasons(suite.run_until_final(run_id)) == {
        "environment_failed": 2,
        "stopped_by_rule": 8,
    }


def test_a_command_that_ended_by_itself_keeps_its_outcome(suite: Stage) -> None:
    """Its end is known to its guest, and to nobody else, when the run is stopped."""
    run_id = suite.start(strict("5s exit 0", count=4, share=0.25))
    suite.ring()
    lost, early, *late = (fork.attempt_id for fork in suite.ports.runs.forks(run_id))
    assert lost
    assert early
    suite.clock.advance(5)
    for name in late:
        assert name
        suite.world.hang(name)
    suite.world.die(lost, DeathCause.SIGNAL, 9)
    suite.bells.collect(suite.host.claim, lost)
    suite.ring()
    page = suite.report(run_id)
    assert page["stopped"] is not None
    assert Counter(fork["outcome"] for fork in page["forks"]) == {
        "env_failed": 1,
        "passed": 1,
        "cancelled": 2,
    }


@pytest.mark.parametrize(
    ("share", "requested", "least"),
    [
        (0.3, 10, 3),
        (0.07, 100, 7),
        (0.1, 30, 3),
        (0.2, 3, 1),
        (1.0, 7, 7),
        (0.001, 10, 1),
        (1 / 3, 3, 1),
    ],
)
def test_the_share_is_reached_exactly(share: float, requested: int, least: int) -> None:
    rule = StopWhen(share)
    assert rule.reached(least, requested)
    assert not rule.reached(least - 1, requested)
