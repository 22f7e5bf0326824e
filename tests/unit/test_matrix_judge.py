"""The judge of the fault matrix sees each thing that is not as a case expects it, and nothing in one that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from drills.matrix.case import Expect, breaks, equals, fails, passes, says, there
from drills.matrix.judge import Seen, seen_of, wrong, wrong_forks, wrong_run
from drills.rows import Account, Attempt
from promigence.types import Report

SECOND_NS = 1_000_000_000
RATE = 36_000  # ten micro-dollars a second
BROKEN = breaks(
    "guest_lost",
    "exec",
    equals("process_signal", 9),
    says("console_tail", "crash"),
    there("monitor_events"),
    task_may_have_caused=True,
    retryable=True,
)
PASSED = passes(output="fine", truncated=False)
FAILED = fails(5)


def test_what_is_as_expected_is_not_told() -> None:
    assert lines(BROKEN, broken()) == []
    assert lines(PASSED, ended()) == []
    assert (
        lines(FAILED, ended(outcome="failed", reason="command_failed", exit_code=5, reward=0.0))
        == []
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"outcome": "failed", "exit_code": 1}, "it is failed instead of env_failed"),
        ({"outcome": "pending"}, "it is pending instead of env_failed"),
        ({"reason": "cancelled"}, "its reason is cancelled"),
        ({"exit_code": 1}, "it is env_failed and has the exit code 1"),
        ({"reward": 0.0}, "its reward is 0.0 instead of None"),
        ({"reward": 0.0, "reward_valid": True}, "its reward is 0.0 instead of None"),
        ({"reward_valid": True}, "its reward None is called valid"),
        ({"failure": None}, "it has no failure; guest_lost was caused"),
        ({"attempts": 2}, "1 machines were expected, 2 are reported"),
        ({"cost_usd": 0.0001}, "it is said to cost 0.0001 USD"),
    ],
)
def test_a_fork_that_is_not_as_expected_is_told(change: dict[str, Any], told: str) -> None:
    assert told in "\n".join(lines(BROKEN, changed(broken(), **change)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "guest_hung"}, "its failure's kind is guest_hung instead of guest_lost"),
        ({"phase": "collect"}, "its failure's phase is collect instead of exec"),
        ({"task_may_have_caused": False}, "task_may_have_caused is False instead of True"),
        ({"retryable": False}, "retryable is False instead of True"),
        ({"evidence": {}}, "its failure has no evidence"),
        ({"evidence": {"process_signal": 9, "console_tail": "crash"}}, "monitor_events is there"),
    ],
)
def test_a_failure_that_is_not_as_expected_is_told(change: dict[str, Any], told: str) -> None:
    seen = broken()
    failure = {**cast(dict[str, Any], seen.fork["failure"]), **change}
    assert told in "\n".join(lines(BROKEN, changed(seen, failure=failure)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("process_signal", 11),
        ("process_signal", "9"),
        ("process_signal", None),
        ("console_tail", "all is well"),
        ("console_tail", None),
        ("monitor_events", []),
        ("monitor_events", None),
    ],
)
def test_evidence_that_does_not_show_it_is_told(key: str, value: object) -> None:
    seen = broken()
    failure = cast(dict[str, Any], seen.fork["failure"])
    evidence = {**failure["evidence"], key: value}
    (told,) = lines(BROKEN, changed(seen, failure={**failure, "evidence": evidence}))
    assert told.startswith(f"its evidence is to show that {key} ")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"exit_code": 4}, "its exit code is 4 instead of 0"),
        ({"exit_code": None}, "its exit code is None instead of 0"),
        ({"stdout_tail": "bad"}, "its output says 'bad', and not 'fine'"),
        ({"truncated": True}, "its output is truncated"),
        ({"reward": None, "reward_valid": False}, "its reward is None instead of 1.0"),
        ({"reward_valid": False}, "its reward 1.0 is called not valid"),
        (
            {"failure": {"kind": "egress_lost", "phase": "exec", "message": "m", "evidence": {}}},
            "it has the failure egress_lost",
        ),
    ],
)
def test_a_pass_that_is_not_as_expected_is_told(change: dict[str, Any], told: str) -> None:
    assert told in "\n".join(lines(PASSED, changed(ended(), **change)))


def test_a_reward_of_its_own_is_compared() -> None:
    graded = Expect("failed", reward=0.25)
    seen = changed(ended(), outcome="failed", reward=0.25)
    assert lines(graded, seen) == []
    assert lines(graded, changed(seen, reward=0.0)) == ["its reward is 0.0 instead of 0.25"]


@pytest.mark.parametrize(
    ("expect", "parts"),
    [
        (BROKEN, (10, 0, 190)),  # verification that is not the environment's
        (BROKEN, (0, 200, 0)),
        (BROKEN, (0, 0, 0)),
        (PASSED, (20, 170, 10)),
        (PASSED, (200, 0, 0)),  # a command that cost nothing
        (replace(PASSED, cost="verification"), (150, 50, 0)),
        (replace(PASSED, cost="verification"), (0, 0, 0)),
    ],
)
def test_a_cost_in_another_part_is_told(expect: Expect, parts: tuple[int, int, int]) -> None:
    seen = broken() if expect is BROKEN else ended()
    seen = replace(seen, attempts=(charged(seen.attempts[0], *parts),))
    assert f"its cost is to be in {expect.cost}; verification, tasks, environment are {parts}" in (
        lines(expect, seen)
    )


def test_a_replaced_fork_as_it_should_be() -> None:
    assert lines(passes(attempts=2, failed=("guest_lost",)), replaced()) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"replaced": False}, "machine 1 is listed as not replaced"),
        ({"cost_usd": 0.0}, "machine 1 is listed with another cost than its row's"),
        ({"kind": "guest_hung"}, "listed as ('guest_hung',) instead of ('guest_lost',)"),
    ],
)
def test_a_replacement_that_is_listed_wrong_is_told(change: dict[str, Any], told: str) -> None:
    seen = replaced()
    listed = cast(Any, {**seen.failed[0], **change})
    said = lines(passes(attempts=2, failed=("guest_lost",)), replace(seen, failed=(listed,)))
    assert told in "\n".join(said)


def test_a_failed_machine_that_is_not_listed_is_told() -> None:
    expect = passes(attempts=2, failed=("guest_lost",))
    (told,) = lines(expect, replace(replaced(), failed=()))
    assert told == "its failed machines are listed as () instead of ('guest_lost',)"


def test_a_replaced_machine_that_cost_the_task_something_is_told() -> None:
    seen = replaced()
    first, second = seen.attempts
    seen = replace(seen, attempts=(charged(first, 10, 0, 190), second))
    (told,) = lines(passes(attempts=2, failed=("guest_lost",)), seen)
    assert told == "machine 1 was replaced, and not all of its cost is the environment's"


def test_more_machines_than_expected_are_told() -> None:
    assert any("1 machines were expected" in line for line in lines(passes(), replaced()))


def test_forks_are_told_apart_and_counted() -> None:
    assert wrong_forks((PASSED, BROKEN), (ended(), broken())) == []
    swapped = wrong_forks((PASSED, BROKEN), (broken(), ended()))
    assert {line.partition(":")[0] for line in swapped} == {"fork 0", "fork 1"}
    assert wrong_forks((PASSED,), ()) == ["0 forks are reported, 1 were asked for"]


def test_forks_are_found_by_their_key_in_the_order_of_their_index() -> None:
    first, second, other = ended(), changed(ended(), index=1, fork_id="fork_2"), broken()
    forks = [second.fork, {**other.fork, "key": "another", "fork_id": "fork_9"}, first.fork]
    listed = [{**other.failed[0], "fork_id": "fork_2"}]
    report = cast(Report, {"forks": forks, "environment_failures": listed})
    seen = seen_of(report, account(first.attempts), "case")
    assert [each.fork["index"] for each in seen] == [0, 1]
    assert [len(each.failed) for each in seen] == [0, 1]
    assert [len(each.attempts) for each in seen] == [1, 0]


def test_the_laws_of_money_are_looked_at_too() -> None:
    seen = ended()
    zero = dict.fromkeys(
        ("failed", "timed_out", "released", "env_failed", "capped", "cancelled", "pending"), 0
    )
    cost = {"total_usd": 0.0002, "spend_cap_usd": 0.001, "tasks_usd": 0.00018,
            "environment_usd": 0.0, "verification_usd": 0.00002}  # fmt: skip
    report = cast(
        Report,
        {"forks": [seen.fork], "totals": {"requested": 1, "passed": 1, **zero}, "cost": cost},
    )
    sound = account(seen.attempts)
    assert wrong_run(report, sound) == []
    assert wrong_run(report, replace(sound, granted_micros=1)) != []
    assert wrong_run(cast(Report, {**report, "cost": {**cost, "tasks_usd": 0.0}}), sound) != []


def lines(expect: Expect, seen: Seen) -> list[str]:
    return list(wrong(expect, seen))


def ended(**told: Any) -> Seen:
    """A fork that passed after 20 s, 2 s of them for its verification."""
    fork = {
        "fork_id": "fork_1",
        "index": 0,
        "key": "case",
        "outcome": "passed",
        "reason": "command_passed",
        "reward": 1.0,
        "reward_valid": True,
        "exit_code": 0,
        "stdout_tail": "fine",
        "stderr_tail": "",
        "truncated": False,
        "cost_usd": 0.0002,
        "attempts": 1,
        "failure": None,
        **told,
    }
    return Seen(cast(Any, fork), (), (attempt(1, 20, 180, 0),))


def broken() -> Seen:
    """A fork whose machine was killed under its command."""
    failure = {
        "kind": "guest_lost",
        "phase": "exec",
        "message": "gone",
        "retryable": True,
        "task_may_have_caused": True,
        "evidence": {"process_signal": 9, "console_tail": "a crash", "monitor_events": ["STOP"]},
    }
    seen = ended(
        outcome="env_failed", reason="environment_failed", reward=None, reward_valid=False,
        exit_code=None, failure=failure,
    )  # fmt: skip
    return Seen(seen.fork, (listed(1, replaced=False),), (attempt(1, 0, 0, 200),))


def replaced() -> Seen:
    """A fork that passed on its second machine."""
    seen = ended(attempts=2, cost_usd=0.0004)
    both = (attempt(1, 0, 0, 200), attempt(2, 20, 180, 0))
    return Seen(seen.fork, (listed(1, replaced=True),), both)


def listed(number: int, *, replaced: bool) -> Any:
    return {
        "kind": "guest_lost",
        "fork_id": "fork_1",
        "attempt": number,
        "cost_usd": 0.0002,
        "replaced": replaced,
    }


def changed(seen: Seen, **change: Any) -> Seen:
    return replace(seen, fork=cast(Any, {**seen.fork, **change}))


def attempt(number: int, verification: int, tasks: int, environment: int) -> Attempt:
    """20 s of a machine's life, in parts."""
    return Attempt(
        attempt_id=f"att_{number}",
        fork_id="fork_1",
        number=number,
        opened_boot_ns=0,
        closed_boot_ns=20 * SECOND_NS,
        lease_ns=60 * SECOND_NS,
        charged_micros=200,
        verification_micros=verification,
        tasks_micros=tasks,
        environment_micros=environment,
    )


def charged(before: Attempt, verification: int, tasks: int, environment: int) -> Attempt:
    return replace(
        before,
        verification_micros=verification,
        tasks_micros=tasks,
        environment_micros=environment,
    )


def account(attempts: tuple[Attempt, ...]) -> Account:
    return Account(
        budget_micros=1_000,
        pool_micros=800,
        granted_micros=0,
        charged_micros=200,
        micros_per_hour=RATE,
        booked=(800, 0, 200),
        attempts=attempts,
    )
