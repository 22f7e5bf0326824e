"""Every change over the API is in the log before it is made, with what came of it; what only reads is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.api.context import REFUSALS_S
from app.api.lately import Lately
from app.domain.account import Scope
from app.domain.audit import MAX_TARGET_CHARS, Entry, Sought
from app.errors import NotFound, PromigenceError, Unavailable
from tests.api.places import ROUTES
from tests.api.test_keys import as_key
from tests.api.test_scopes import keyed
from tests.api.two_projects import Sent, two_projects
from tests.api.world import HOLD, STEP, Door, raw
from tests.flow.stage import PROJECT


def log(door: Door, **sought: Any) -> list[Entry]:
    """The project's entries, newest first."""
    return list(door.stage.ports.audit.list(PROJECT, Sought(**sought), 1000, None))


def own_key(door: Door) -> str:
    return door.stage.ports.keys.caller_of(door.key).key_id


def test_a_change_says_who_what_and_what_came_of_it(suite: Door) -> None:
    run_id = suite.post("/v1/runs", HOLD, 201)["run_id"]
    suite.stage.clock.advance(1)
    answer = suite.client.post(f"/v1/runs/{run_id}/cancel")
    cancelled, started = suite.get("/v1/audit")["entries"]
    assert (started["action"], started["target"], started["status"]) == ("start_run", run_id, 201)
    assert (cancelled["action"], cancelled["target"]) == ("cancel_run", run_id)
    assert cancelled["request_id"] == answer.headers["x-request-id"]
    assert {started["actor"], cancelled["actor"]} == {own_key(suite)}
    assert (cancelled["outcome"], cancelled["client"]) == ("done", "testclient")


def test_a_balancers_word_for_who_calls_is_kept_short(suite: Door) -> None:
    behind = TestClient(suite.api, headers=dict(suite.client.headers), client=("x" * 9000, 0))
    assert behind.post("/v1/runs/none/cancel").status_code == 404
    (entry,) = suite.get("/v1/audit", limit=1)["entries"]
    assert entry["client"] == "x" * MAX_TARGET_CHARS


def test_what_is_refused_is_in_it_and_what_only_reads_is_not(suite: Door) -> None:
    suite.get("/v1/runs")
    suite.client.get("/v1/runs/none")
    assert log(suite) == []
    suite.refused("POST", "/v1/runs/none/cancel", 404, "unknown_run")
    suite.refused("POST", "/v1/runs", 400, "bad_request", content=b"{")
    reader = keyed(suite, Scope.READ)
    assert raw(reader, "POST", "/v1/runs/run_1/cancel").status == 403
    seen = {(each.action, each.target, each.status) for each in log(suite)}
    assert seen == {
        ("cancel_run", "run_1", 403),
        ("start_run", None, 400),
        ("cancel_run", "none", 404),
    }
    assert {each.outcome.value for each in log(suite)} == {"refused"}
    assert [each.target for each in log(suite, actor=own_key(reader))] == ["run_1"]


def test_a_key_that_may_change_nothing_cannot_fill_the_log(suite: Door) -> None:
    reader = keyed(suite, Scope.READ)
    paths = ["/v1/runs/run_1/cancel", "/v1/runs", "/v1/forks/fork_1/execs"]
    seen = [raw(reader, "POST", path).status for path in paths for _ in range(5)]
    assert set(seen) == {403}
    noted = sorted(each.action for each in log(suite, actor=own_key(reader)))
    assert noted == ["cancel_run", "run_command", "start_run"]
    refusals = Lately(REFUSALS_S)
    instants = (0.0, 59.9, 60.0, 60.1, 120.0)
    assert [refusals.is_new(("key_1", "a"), now_s) for now_s in instants] == [
        *(True, False, True, False, True)
    ]


def test_every_route_that_changes_something_leaves_an_entry(tmp_path: Path) -> None:
    """All routes of the document, by a key that may: each other than GET and HEAD, and no GET."""
    with two_projects(tmp_path) as projects:
        audit = projects.door.stage.ports.audit
        for name, route in ROUTES.items():
            before = audit.list(PROJECT, Sought(), 1000, None)
            things = dict.fromkeys(projects.owner.things, "none") | {"sha256": "0" * 64}
            projects.ask(
                route, Sent({"sh": "true"} if "execs" in name else None), projects.owner, things
            )
            new = len(audit.list(PROJECT, Sought(), 1000, None)) - len(before)
            assert new == (0 if route.method in ("GET", "HEAD") else 1), name


def test_the_entry_is_there_before_the_change(suite: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever dies while a change is made leaves what it was about, and that its end is not known."""
    run_id, seen = suite.post("/v1/runs", HOLD, 201)["run_id"], list[Entry]()

    def looks(*_: object) -> None:
        seen.extend(log(suite, action="cancel_run"))
        raise NotFound("unknown_run", "that is enough")

    monkeypatch.setattr(type(suite.stage.ports.runs), "ask_stop", looks)
    suite.refused("POST", f"/v1/runs/{run_id}/cancel", 404, "unknown_run")
    (entry,) = seen
    assert (entry.target, entry.status, entry.outcome.value) == (run_id, None, "unknown")


def test_no_entry_no_change(suite: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise Unavailable("database_away", "gone")

    run_id = suite.post("/v1/runs", HOLD, 201)["run_id"]
    monkeypatch.setattr(type(suite.stage.ports.audit), "begin", away)
    suite.refused("POST", f"/v1/runs/{run_id}/cancel", 503, "database_away")
    suite.stage.run_for(2)
    assert suite.get(f"/v1/runs/{run_id}/forks")["forks"][0]["state"] == "ready"


def test_an_answer_is_given_though_its_outcome_cannot_be_noted(
    suite: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unavailable("database_away", "gone")

    monkeypatch.setattr(type(suite.stage.ports.audit), "end", away)
    run_id = suite.post("/v1/runs", HOLD, 201)["run_id"]
    assert suite.get(f"/v1/runs/{run_id}")["run_id"] == run_id
    assert [each.outcome.value for each in log(suite)] == ["unknown"]


def test_a_fault_of_ours_is_a_change_that_failed(
    suite: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise PromigenceError("constraint_refused", "ours")

    run_id = suite.post("/v1/runs", HOLD, 201)["run_id"]
    monkeypatch.setattr(type(suite.stage.ports.runs), "ask_stop", breaks)
    assert suite.client.post(f"/v1/runs/{run_id}/cancel").status_code == 500
    (entry,) = log(suite, action="cancel_run")
    assert (entry.status, entry.outcome.value) == (500, "failed")


def test_a_command_of_a_held_fork_is_in_it_with_its_row(suite: Door) -> None:
    """In one transaction; sent again it is the same command, and no change."""
    fork_id = suite.held_fork()
    command = {"sh": "sim: 0.1s", "exec_id": "mine"}
    for _ in range(2):
        suite.post(f"/v1/forks/{fork_id}/execs", command)
    (entry,) = log(suite, action="run_command")
    assert (entry.target, entry.status, entry.outcome.value) == (fork_id, 202, "done")
    assert entry.actor == own_key(suite)


def test_a_command_whose_entry_cannot_be_written_is_not_run(
    suite: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unavailable("database_away", "gone")

    fork_id = suite.held_fork()
    monkeypatch.setattr("infra.store.execs.write_entry", away)
    there = f"/v1/forks/{fork_id}/execs"
    suite.refused("POST", there, 503, "database_away", json={"sh": "sim: 0.1s"})
    assert suite.get(f"/v1/forks/{fork_id}")["commands"] == []


def test_a_command_that_is_refused_for_good_is_in_it(suite: Door) -> None:
    run_id = suite.post("/v1/runs", STEP, 201)["run_id"]
    fork_id = suite.get(f"/v1/runs/{run_id}/forks")["forks"][0]["fork_id"]
    there = f"/v1/forks/{fork_id}/execs"
    suite.refused("POST", there, 409, "fork_not_held", json={"sh": "true"})
    suite.refused("POST", "/v1/forks/none/execs", 404, "unknown_fork", json={"sh": "true"})
    assert raw(keyed(suite, Scope.READ), "POST", there).status == 403
    refused = {(each.target, each.status) for each in log(suite, action="run_command")}
    assert refused == {(fork_id, 403), ("none", 404), (fork_id, 409)}


def test_a_command_that_may_be_sent_again_is_not(suite: Door) -> None:
    run_id = suite.post("/v1/runs", HOLD, 201)["run_id"]
    fork_id = suite.get(f"/v1/runs/{run_id}/forks")["forks"][0]["fork_id"]
    there = f"/v1/forks/{fork_id}/execs"
    suite.refused("POST", there, 409, "fork_not_ready", json={"sh": "true"})
    assert log(suite, action="run_command") == []


def test_the_log_is_read_by_key_action_and_time_in_pages(suite: Door) -> None:
    other = keyed(suite, Scope.RUN, Scope.READ)
    for _ in range(3):
        suite.post("/v1/quotes", STEP)
        suite.stage.clock.advance(1)
    assert raw(other, "POST", "/v1/runs/none/cancel").status == 404
    found = suite.get("/v1/audit", key=own_key(other))["entries"]
    assert [each["action"] for each in found] == ["cancel_run"]
    quotes = suite.get("/v1/audit", action="make_quote")["entries"]
    assert len(quotes) == 3
    since = suite.get("/v1/audit", action="make_quote", **{"from": quotes[1]["at"]})["entries"]
    assert since == quotes[:2]
    until = suite.get("/v1/audit", action="make_quote", until=quotes[1]["at"])["entries"]
    assert until == quotes[2:]
    paged, cursor = [], None
    while True:
        page = suite.get("/v1/audit", limit=1, **({"cursor": cursor} if cursor else {}))
        paged += page["entries"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert paged == suite.get("/v1/audit")["entries"]
    assert len(paged) == 4


@pytest.mark.parametrize(
    "query",
    [{"cursor": "1"}, {"cursor": "9999999999999999999-audit_1"}, {"from": "soon"}, {"action": "A"}],
)
def test_what_is_no_place_or_time_is_told(still: Door, query: dict[str, str]) -> None:
    still.refused("GET", "/v1/audit", 400, "bad_request", params=query)


def test_no_secret_and_no_body_is_in_it(suite: Door) -> None:
    key = suite.post("/v1/keys", {"name": "planted-name", "scopes": ["run"]}, 201)
    planted = {"sh": "sim: print planted-command", "env": {"TOKEN": "planted-token"}}
    suite.post(f"/v1/forks/{suite.held_fork()}/execs", planted)
    with suite.stage.stores.database.read() as at:
        rows = json.dumps([list(row) for row in at.exec_driver_sql("SELECT * FROM audit")])
    for secret in (suite.key, key["secret"], "planted"):
        assert secret not in rows
    assert key["key_id"] in rows


def test_what_a_caller_writes_into_a_path_is_kept_short(suite: Door) -> None:
    suite.refused("POST", f"/v1/runs/{'x' * 3000}/cancel", 400, "bad_request")
    assert log(suite)[0].target == "x" * 200


def test_a_revoked_key_is_known_by_its_deeds(suite: Door) -> None:
    made = suite.post("/v1/keys", {"name": "stolen", "scopes": ["run"]}, 201)
    suite.client.post("/v1/quotes", json=STEP, headers=as_key(made["secret"]))
    suite.client.delete(f"/v1/keys/{made['key_id']}")
    (deed,) = suite.get("/v1/audit", key=made["key_id"])["entries"]
    assert (deed["action"], deed["outcome"]) == ("make_quote", "done")
    (end,) = suite.get("/v1/audit", action="revoke_key")["entries"]
    assert (end["actor"], end["target"]) == (own_key(suite), made["key_id"])
