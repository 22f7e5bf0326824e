"""Quotes and runs, from the price to the report."""

from __future__ import annotations

import time
from typing import Any

import pytest

from app.domain.run import RunState
from tests.api.world import HOLD, STEP, Door

WITHOUT_COMMAND = {name: value for name, value in STEP.items() if name != "exec"}


def _started(door: Door, **change: Any) -> str:
    door.stage.clock.advance(1)
    return str(door.post("/v1/runs", {**STEP, **change}, 201)["run_id"])


def _run_rows(door: Door) -> int:
    return len(door.get("/v1/runs")["runs"])


def test_a_quote_says_the_most_that_a_step_can_cost(suite: Door) -> None:
    quote = suite.post("/v1/quotes", {**STEP, "count": 20, "spend_cap": 0.02})
    assert quote["max_cost_usd"] == quote["spend_cap_usd"] == 0.02
    assert quote["worst_case_usd"] > 0.02
    assert quote["rate"] == {
        "usd_per_fork_hour": 0.036,
        "basis": "committed",
        "card_version": "test-1",
    }
    assert quote["concurrency"] == {
        "requested": 20,
        "slots": 100,
        "free_now": 100,
        "binding": "request",
    }
    assert quote["limits"]["binding"] == "spend_cap"
    assert quote["accelerator"] in ("kvm", "tcg")
    assert quote["expires_at"].endswith("Z")
    assert _run_rows(suite) == 0


def test_a_step_from_its_start_to_its_report(suite: Door) -> None:
    started = suite.post("/v1/runs", {**STEP, "labels": {"step": "17"}}, 201)
    assert set(started) == {"run_id", "state", "quote"}
    path = f"/v1/runs/{started['run_id']}"
    before = suite.get(path)
    assert (before["state"], before["final"], before["ended_at"]) == ("queued", False, None)
    assert before["snapshots"] == ["task-suite@1"]
    assert before["labels"] == {"step": "17"}
    assert before["quote"] == started["quote"]
    progress = before["progress"]
    states = ("queued", "restoring", "checking", "ready", "running")
    assert sum(progress[state] for state in states) == before["totals"]["pending"] == 2

    report = suite.get(f"{path}/report", wait_seconds=25)
    assert (report["final"], report["state"]) == (True, "ended")
    assert report["totals"]["passed"] == 2
    cost = report["cost"]
    parts = cost["tasks_usd"] + cost["environment_usd"] + cost["verification_usd"]
    assert round(parts, 6) == cost["total_usd"] <= cost["spend_cap_usd"]
    assert [(fork["index"], fork["reward"]) for fork in report["forks"]] == [(0, 1.0), (1, 1.0)]
    assert report["environment_failures"] == []
    assert suite.get(path)["ended_at"] is not None


def test_a_ledger_says_where_the_money_went(suite: Door) -> None:
    path = f"/v1/runs/{_started(suite)}"
    report = suite.get(f"{path}/report", wait_seconds=25)
    told = suite.get(f"{path}/ledger")
    assert told["charged_usd"] == report["cost"]["total_usd"] > 0
    assert (told["granted_usd"], len(told["attempts"])) == (0, 2)
    assert told["budget_usd"] == round(told["charged_usd"] + told["pool_usd"], 6)
    suite.refused("GET", "/v1/runs/run_none/ledger", 404, "unknown_run")


def test_a_report_may_leave_its_forks_out(suite: Door) -> None:
    path = f"/v1/runs/{_started(suite)}/report"
    assert "forks" not in suite.get(path, forks="false")
    assert len(suite.get(path)["forks"]) == 2


def test_a_report_before_the_end_says_pending(suite: Door) -> None:
    report = suite.get(f"/v1/runs/{_started(suite)}/report")
    assert (report["final"], report["totals"]["pending"]) == (False, 2)
    assert {fork["outcome"] for fork in report["forks"]} == {"pending"}
    assert {fork["reward"] for fork in report["forks"]} == {None}


def test_an_environment_failure_is_in_the_report_with_its_evidence(suite: Door) -> None:
    run_id = _started(suite, exec={"sh": "sim: 0.5s crash", "timeout_seconds": 60})
    report = suite.get(f"/v1/runs/{run_id}/report", wait_seconds=25)
    assert report["totals"]["env_failed"] == 2
    assert {fork["reward"] for fork in report["forks"]} == {None}
    assert {fork["reward_valid"] for fork in report["forks"]} == {False}
    failed = report["environment_failures"][0]
    assert (failed["kind"], failed["replaced"], failed["attempt"]) == ("guest_lost", False, 1)
    assert failed["evidence"]


def test_a_long_poll_ends_with_the_run_and_holds_no_longer_than_asked(suite: Door) -> None:
    run_id = _started(suite)
    suite.wakes.still = True
    begun = time.monotonic()
    assert suite.get(f"/v1/runs/{run_id}", wait_seconds=0.2)["final"] is False
    assert 0.2 <= time.monotonic() - begun < 10
    suite.wakes.still = False
    assert suite.get(f"/v1/runs/{run_id}", wait_seconds=25)["final"] is True
    assert suite.wakes.heard.count(run_id) >= 2
    heard = len(suite.wakes.heard)
    suite.get(f"/v1/runs/{run_id}/report", wait_seconds=25)
    assert len(suite.wakes.heard) == heard + 1, "a final run is answered after one look"


def test_a_step_under_its_quote(suite: Door) -> None:
    quote = suite.post("/v1/quotes", STEP)
    started = suite.post("/v1/runs", {**STEP, "quote_id": quote["quote_id"]}, 201)
    assert started["quote"] == quote


def test_a_quote_that_left_its_command_open_holds_for_one_of_the_default_limit(suite: Door) -> None:
    quote = suite.post("/v1/quotes", WITHOUT_COMMAND)
    step = {**WITHOUT_COMMAND, "quote_id": quote["quote_id"], "exec": {"sh": "sim: 1s"}}
    assert suite.post("/v1/runs", step, 201)["quote"]["quote_id"] == quote["quote_id"]
    short = {**step, "exec": {"sh": "sim: 1s", "timeout_seconds": 60}}
    suite.refused("POST", "/v1/runs", 409, "quote_mismatch", json=short)


@pytest.mark.parametrize(
    "change", [{"count": 3}, {"spend_cap": 9.0}, {"verify_each": True}, {"exec": {"sh": "false"}}]
)
def test_a_step_that_differs_from_its_quote(still: Door, change: dict[str, Any]) -> None:
    quote_id = still.post("/v1/quotes", STEP)["quote_id"]
    body = {**STEP, **change, "quote_id": quote_id}
    still.refused("POST", "/v1/runs", 409, "quote_mismatch", json=body)


def test_a_quote_that_has_run_out(suite: Door) -> None:
    quote_id = suite.post("/v1/quotes", STEP)["quote_id"]
    suite.stage.clock.advance(901)
    suite.refused("POST", "/v1/runs", 409, "quote_expired", json={**STEP, "quote_id": quote_id})
    unknown = {**STEP, "quote_id": "quote_none"}
    suite.refused("POST", "/v1/runs", 404, "unknown_quote", json=unknown)


@pytest.mark.parametrize("path", ["/v1/quotes", "/v1/runs"])
@pytest.mark.parametrize("count", [0, -1, 2001, 10**12])
def test_a_count_out_of_range_names_the_limit(still: Door, path: str, count: int) -> None:
    error = still.refused(
        "POST", path, 400, "count_out_of_range", json={**STEP, "count": count, "spend_cap": 1e6}
    )
    assert error["details"]["limit"] == 2000


def test_groups_count_together(suite: Door) -> None:
    groups = [{"snapshot": "task-suite", "count": 1001, "key": key} for key in ("a", "b")]
    body = {"groups": groups, "spend_cap": 1e6, "hold_seconds": 60}
    suite.refused("POST", "/v1/runs", 400, "count_out_of_range", json=body)
    two = [{**group, "count": 1} for group in groups]
    run_id = suite.post("/v1/runs", {**body, "groups": two}, 201)["run_id"]
    forks = suite.get(f"/v1/runs/{run_id}/forks")["forks"]
    assert [(fork["key"], fork["snapshot"]) for fork in forks] == [
        ("a", "task-suite@1"),
        ("b", "task-suite@1"),
    ]


def test_a_cap_that_is_too_small_names_the_smallest_that_works(suite: Door) -> None:
    body = {**STEP, "spend_cap": 0.000001}
    error = suite.refused("POST", "/v1/runs", 400, "cap_too_small", json=body)
    smallest = error["details"]["smallest_cap_usd"]
    assert suite.post("/v1/runs", {**STEP, "spend_cap": smallest}, 201)["run_id"]


def test_what_a_step_must_not_ask_for(still: Door) -> None:
    unknown = {**STEP, "snapshot": "task-siute"}
    error = still.refused("POST", "/v1/runs", 404, "unknown_snapshot", json=unknown)
    assert "task-suite" in error["message"]
    barred = {**STEP, "egress": ["policy.internal:8000", "metadata.internal:80"]}
    error = still.refused("POST", "/v1/runs", 403, "egress_not_allowed", json=barred)
    assert error["details"]["target"] == "metadata.internal:80"


@pytest.mark.parametrize("path", ["/v1/quotes", "/v1/runs"])
def test_a_repeated_post_happens_once(suite: Door, path: str) -> None:
    status = 200 if path == "/v1/quotes" else 201
    first = suite.post(path, STEP, status, key="once")
    again = dict(reversed(STEP.items()))
    assert suite.post(path, again, status, key="once") == first
    other = {**STEP, "count": 3}
    headers = {"Idempotency-Key": "once"}
    error = suite.refused("POST", path, 409, "idempotency_mismatch", json=other, headers=headers)
    assert error["retryable"] is False
    assert suite.post(path, STEP, status, key="twice") != first
    assert suite.post(path, STEP, status) != suite.post(path, STEP, status)


def test_a_key_stands_for_one_path_and_one_project(suite: Door) -> None:
    suite.post("/v1/quotes", STEP, key="once")
    headers = {"Idempotency-Key": "once"}
    suite.refused("POST", "/v1/runs", 409, "idempotency_mismatch", json=STEP, headers=headers)
    strange = {**headers, **suite.as_stranger()}
    error = suite.refused("POST", "/v1/quotes", 404, "unknown_snapshot", json=STEP, headers=strange)
    assert error["code"] != "idempotency_mismatch"


def test_a_key_is_forgotten_after_a_day(suite: Door) -> None:
    first = suite.post("/v1/quotes", STEP, key="once")
    suite.stage.clock.advance(24 * 3600 + 1)
    assert suite.post("/v1/quotes", STEP, key="once") != first


@pytest.mark.parametrize("key", ["", "x" * 129, "a\tb", "caf\u00e9"])
def test_a_key_is_short_and_plain(still: Door, key: str) -> None:
    headers = [(b"Idempotency-Key", key.encode())]
    answer = still.client.post("/v1/quotes", json=STEP, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["details"]["fields"][0]["field"] == "header idempotency-key"


def test_runs_are_found_again_by_their_labels(suite: Door) -> None:
    ids = [_started(suite, labels={"step": str(n // 2), "n": str(n)}) for n in range(4)]
    found = [run["run_id"] for run in suite.get("/v1/runs", label="step=1")["runs"]]
    assert found == [ids[3], ids[2]]
    both = suite.get("/v1/runs", label=["step=1", "n=2"])["runs"]
    assert [run["run_id"] for run in both] == [ids[2]]
    assert suite.get("/v1/runs", label="step=9")["runs"] == []
    for label in ("step", "=1"):
        suite.refused("GET", "/v1/runs", 400, "bad_request", params={"label": label})
    twice = {"label": ["n=1", "n=2"]}
    suite.refused("GET", "/v1/runs", 400, "bad_request", params=twice)


def test_a_list_goes_on_at_its_cursor(suite: Door) -> None:
    ids = [_started(suite) for _ in range(5)]
    seen, cursor = [], None
    while True:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = suite.get("/v1/runs", **query)
        seen += [run["run_id"] for run in page["runs"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]
    for limit in (0, 501, "x"):
        suite.refused("GET", "/v1/runs", 400, "bad_request", params={"limit": limit})


def test_forks_are_listed_by_index_page_by_page(suite: Door) -> None:
    path = f"/v1/runs/{_started(suite, count=5)}/forks"
    first = suite.get(path, limit=3)
    rest = suite.get(path, limit=3, cursor=first["next_cursor"])
    assert [fork["index"] for fork in first["forks"] + rest["forks"]] == [0, 1, 2, 3, 4]
    assert rest["next_cursor"] is None
    for cursor in ("x", "-1", "\u0661", "9" * 10):
        suite.refused("GET", path, 400, "bad_request", params={"cursor": cursor})


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_body_that_nobody_asked_for_does_no_harm(still: Door, body: bytes) -> None:
    headers = {"Idempotency-Key": "once", "Content-Type": "application/json"}
    path = "/v1/runs/run_none/cancel"
    still.refused("POST", path, 404, "unknown_run", content=body, headers=headers)


def test_a_cancelled_run_ends_and_stays_ended(suite: Door) -> None:
    run_id = suite.post("/v1/runs", HOLD, 201)["run_id"]
    suite.stage.run_for(2)
    suite.post(f"/v1/runs/{run_id}/cancel", None, key="stop")
    final = suite.get(f"/v1/runs/{run_id}", wait_seconds=25)
    assert (final["final"], final["totals"]["cancelled"]) == (True, 2)
    assert suite.post(f"/v1/runs/{run_id}/cancel", None) == final
    assert suite.stage.ports.runs.get("default", run_id).state is RunState.ENDED
