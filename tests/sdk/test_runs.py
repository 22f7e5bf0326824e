from __future__ import annotations

from typing import Any

import httpx2
import pytest

from promigence import Promigence, Unavailable, WaitTimeout, rewards
from promigence.types import Group, Run
from tests.sdk import shapes
from tests.sdk.wire import FakeTime, Wire, client_of, ok, refused


def test_a_quote_asks_for_what_it_was_given_and_nothing_more(
    client: Promigence, wire: Wire
) -> None:
    wire.will(ok(shapes.quote(20)))
    quote = client.runs.quote("task-suite", count=20, spend_cap=1.0)
    assert quote == shapes.quote(20)
    assert wire.lines == ["POST /v1/quotes"]
    assert wire.body() == {"snapshot": "task-suite", "count": 20, "spend_cap": 1.0}


def test_every_argument_of_start_goes_out_under_its_name(client: Promigence, wire: Wire) -> None:
    given: dict[str, Any] = {
        "count": 2,
        "spend_cap": 1.0,
        "verify_each": False,
        "exec": {"argv": ["make", "test"], "timeout_seconds": 60, "environment_exit_codes": [75]},
        "grade": {"sh": "grade"},
        "environment_retries": 1,
        "rerun_started": True,
        "guest_faults": "task",
        "egress": ["policy.internal:8000"],
        "labels": {"step": "17"},
        "queue_timeout_seconds": 60,
        "quote_id": "q-1",
    }
    wire.will(ok(shapes.started(), 201))
    assert client.runs.start("task-suite@3", **given) == shapes.started()
    assert wire.lines == ["POST /v1/runs"]
    assert wire.body() == {"snapshot": "task-suite@3", **given}


def test_a_step_of_many_groups_is_one_run(client: Promigence, wire: Wire) -> None:
    groups: list[Group] = [
        {"snapshot": "a@3", "count": 16, "key": "prompt-17", "env": {"SEED": "17"}},
        {"snapshot": "b", "count": 8},
    ]
    wire.will(ok(shapes.started(), 201))
    client.runs.start(groups, spend_cap=1.0, hold_seconds=600)
    assert wire.body() == {"groups": groups, "spend_cap": 1.0, "hold_seconds": 600}


def test_an_argument_that_there_is_not_is_told_of_before_anything_is_sent(
    client: Promigence, wire: Wire
) -> None:
    with pytest.raises(TypeError, match=r"'spend_capp'; did you mean 'spend_cap'\?"):
        client.runs.quote("task-suite", count=1, spend_capp=1.0)  # type: ignore[call-arg]
    assert wire.asked == []


def test_a_report_without_its_forks(client: Promigence, wire: Wire) -> None:
    report = shapes.report(shapes.fork_report(0, "passed", 1.0))
    del report["forks"]
    wire.will(ok(report))
    assert "forks" not in client.runs.report("r-1", forks=False)
    assert wire.lines == ["GET /v1/runs/r-1/report?forks=false"]


def test_a_ledger(client: Promigence, wire: Wire) -> None:
    wire.will(ok(shapes.ledger()))
    assert client.runs.ledger("r-1") == shapes.ledger()
    assert wire.lines == ["GET /v1/runs/r-1/ledger"]


def test_a_wait_polls_until_final_and_reads_the_report_once(client: Promigence, wire: Wire) -> None:
    report = shapes.report(shapes.fork_report(0, "passed", 1.0))
    wire.will(ok(shapes.run(pending=1)), ok(shapes.run(passed=1)), ok(report))
    assert client.runs.wait("r-1") == report
    assert wire.lines == [
        "GET /v1/runs/r-1?wait_seconds=25.0",
        "GET /v1/runs/r-1?wait_seconds=25.0",
        "GET /v1/runs/r-1/report?forks=true",
    ]


def test_a_wait_that_is_watched_tells_of_each_look(client: Promigence, wire: Wire) -> None:
    seen: list[Run] = []
    looks = [shapes.run(pending=2), shapes.run(pending=1, passed=1), shapes.run(passed=2)]
    wire.will(*(ok(look) for look in looks), ok(shapes.report()))
    client.runs.wait("r-1", on_progress=seen.append)
    assert seen == looks
    assert wire.lines[0] == "GET /v1/runs/r-1?wait_seconds=1.0"


def test_a_server_that_does_not_wait_is_not_hammered(
    client: Promigence, wire: Wire, time: FakeTime
) -> None:
    wire.will(*(ok(shapes.run(pending=1)) for _ in range(5)), ok(shapes.run(passed=1)))
    wire.will(ok(shapes.report()))
    client.runs.wait("r-1")
    assert time.pauses == pytest.approx([0.2] * 5)


def test_a_wait_that_is_over_leaves_the_run_going(wire: Wire, time: FakeTime) -> None:
    def never_final(request: httpx2.Request) -> httpx2.Response:
        time.now += float(request.url.params["wait_seconds"])
        wire.asked.append(request)
        return ok(shapes.run(pending=1))

    begun = time.now
    transport = httpx2.MockTransport(never_final)
    with (
        Promigence("k", "http://p.test", transport=transport, pace=time.pace()) as client,
        pytest.raises(WaitTimeout) as caught,
    ):
        client.runs.wait("r-1", timeout=60)
    assert caught.value.details == {"run_id": "r-1"}
    assert time.now - begun <= 60
    assert {request.method for request in wire.asked} == {"GET"}


def test_a_wait_without_limit_ends_when_the_server_has_been_away_too_long(
    wire: Wire, time: FakeTime
) -> None:
    wire.will(*(refused(503, "unavailable", retryable=True) for _ in range(30)))
    begun = time.now
    with client_of(wire, time, timeout=60) as client, pytest.raises(Unavailable):
        client.runs.wait("r-1")
    assert 50 < time.now - begun <= 60
    wire.replies.clear()


def test_a_fault_on_the_way_does_not_end_a_wait(client: Promigence, wire: Wire) -> None:
    wire.will(
        ok(shapes.run(pending=1)),
        httpx2.ReadError("reset"),
        httpx2.Response(502),
        ok(shapes.run(passed=1)),
        ok(shapes.report()),
    )
    assert client.runs.wait("r-1")["final"]


def test_cancel_carries_a_key(client: Promigence, wire: Wire) -> None:
    wire.will(ok(shapes.run(cancelled=2)))
    assert client.runs.cancel("r-1")["totals"]["cancelled"] == 2
    assert wire.lines == ["POST /v1/runs/r-1/cancel"]
    assert wire.keys() != [None]


def test_a_run_is_found_again_by_its_labels(client: Promigence, wire: Wire) -> None:
    wire.will(ok({"runs": [shapes.run(passed=1)], "next_cursor": None}))
    (found,) = client.runs.list({"step": "17", "team": "a&b"})
    assert found["run_id"] == "r-1"
    assert wire.lines == ["GET /v1/runs?label=step%3D17&label=team%3Da%26b&limit=100"]


def test_a_list_goes_on_page_by_page(client: Promigence, wire: Wire) -> None:
    pages = [[shapes.fork(index) for index in range(3)], [shapes.fork(3)]]
    wire.will(
        ok({"forks": pages[0], "next_cursor": "c-1"}), ok({"forks": pages[1], "next_cursor": None})
    )
    assert [fork["index"] for fork in client.runs.forks("r-1")] == [0, 1, 2, 3]
    assert wire.lines[1] == "GET /v1/runs/r-1/forks?limit=500&cursor=c-1"


def test_a_list_ends_at_its_limit(client: Promigence, wire: Wire) -> None:
    page = {"runs": [shapes.run(f"r-{n}", passed=1) for n in range(3)], "next_cursor": "more"}
    wire.will(ok(page))
    assert len(client.runs.list(limit=2)) == 2
    assert wire.lines == ["GET /v1/runs?limit=2"]


def test_rewards_are_masked_and_never_zero_for_unknown() -> None:
    report = shapes.report(
        shapes.fork_report(2, "env_failed"),
        shapes.fork_report(0, "passed", 1.0, key="p-1"),
        shapes.fork_report(1, "failed", 0.0, key="p-1"),
        shapes.fork_report(3, "pending"),
        shapes.fork_report(4, "capped"),
    )
    assert rewards(report) == {
        "rewards": [1.0, 0.0, None, None, None],
        "mask": [True, True, False, False, False],
        "keys": ["p-1", "p-1", None, None, None],
        "groups": [
            {
                "key": "p-1",
                "snapshot": "task-suite@1",
                "indices": [0, 1],
                "attempted": 2,
                "valid": 2,
            },
            {
                "key": None,
                "snapshot": "task-suite@1",
                "indices": [2, 3, 4],
                "attempted": 2,
                "valid": 0,
            },
        ],
        "attempted": 4,
        "valid": 2,
    }


def test_a_reward_that_is_not_valid_is_not_given() -> None:
    fork = shapes.fork_report(0, "released", 0.5)
    fork["reward_valid"] = False
    assert rewards(shapes.report(fork))["rewards"] == [None]


def test_rewards_need_the_forks() -> None:
    report = shapes.report()
    del report["forks"]
    with pytest.raises(ValueError, match="without its forks"):
        rewards(report)
