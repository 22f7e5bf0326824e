"""The drill of at-most-once sees each thing that it is there for."""

from __future__ import annotations

import urllib.request
from typing import Any

from drills.once.counter import counting
from drills.once.judge import Planned, judge

ASKED = (Planned("one", 1.0, 0), Planned("two", 1.0, 2))
COUNTED = {"one": 1, "two": 1}


def fork(key: str, outcome: str, exit_code: int | None, **more: Any) -> dict[str, Any]:
    told = {"stdout_tail": f"{key}\n", "failure": None, "attempts": 1, **more}
    return {"key": key, "outcome": outcome, "exit_code": exit_code, **told}


def failed(key: str, kind: str, **evidence: object) -> dict[str, Any]:
    failure = {"kind": kind, "message": "seen", "evidence": evidence}
    return fork(key, "env_failed", None, failure=failure)


SOUND = (fork("one", "passed", 0), fork("two", "failed", 2))


def test_all_that_ended_once_with_its_own_code_holds() -> None:
    assert judge(ASKED, COUNTED, SOUND).held


def test_a_command_that_lost_its_way_out_is_not_counted_and_holds() -> None:
    assert judge(ASKED, {"one": 1}, SOUND).held


def test_a_command_that_ran_twice_is_seen() -> None:
    assert judge(ASKED, {"one": 2, "two": 1}, SOUND).twice == ("one was counted 2 times",)


def test_a_command_without_an_end_is_lost() -> None:
    verdict = judge(ASKED, COUNTED, (SOUND[0], failed("two", "worker_lost")))
    assert verdict.lost == ("two: env_failed (worker_lost: seen); counted 1",)
    assert judge(ASKED, COUNTED, SOUND[:1]).lost == ("two has no fork in the report",)


def test_another_exit_code_or_another_output_is_wrong() -> None:
    assert judge(ASKED, COUNTED, (fork("one", "failed", 3), SOUND[1])).wrong
    assert judge(ASKED, COUNTED, (fork("one", "passed", 0, stdout_tail=""), SOUND[1])).wrong


def test_a_gap_in_egress_is_for_commands_that_did_not_pass() -> None:
    gap = failed("two", "egress_lost", exit_code=2, stdout_tail="two\n")
    verdict = judge(ASKED, COUNTED, (SOUND[0], gap))
    assert verdict.held
    assert verdict.gaps == 1
    passed = failed("one", "egress_lost", exit_code=0, stdout_tail="one\n")
    assert judge(ASKED, COUNTED, (passed, SOUND[1])).wrong


def test_a_counter_that_hears_of_nobody_shows_nothing() -> None:
    assert judge(ASKED, {}, SOUND).wrong
    assert judge(ASKED, {**COUNTED, "stranger": 1}, SOUND).wrong


def test_replaced_forks_are_counted() -> None:
    assert judge(ASKED, COUNTED, (fork("one", "passed", 0, attempts=3), SOUND[1])).replaced == 1


def test_the_counter_counts_each_command() -> None:
    with counting() as (address, counts):
        for name in ("one", "two", "one"):
            with urllib.request.urlopen(f"http://{address}/{name}", timeout=10) as answer:
                assert answer.read() == b"ok"
        assert counts.counts() == {"one": 2, "two": 1}
        assert counts.first_s().keys() == {"one", "two"}
