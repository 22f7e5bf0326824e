"""Whatever goes wrong: one shape, a request id, nothing of the inside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.responses import StreamingResponse

from app.api.middleware import HEADERS, MAX_JSON_BYTES
from app.errors import Unavailable
from tests.api.world import STEP, Door, raw

JSON = {"Content-Type": "application/json"}


def test_an_error_has_one_shape_and_the_id_of_its_request(still: Door) -> None:
    answer = still.client.get("/v1/runs/run_none")
    assert answer.status_code == 404
    assert list(answer.json()) == ["error"]
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "retryable", "request_id", "details"}
    assert (error["code"], error["retryable"]) == ("unknown_run", False)
    assert error["request_id"] == answer.headers["x-request-id"]


def test_every_answer_has_its_own_request_id_and_the_headers_of_safety(still: Door) -> None:
    answers = [
        still.client.get(path) for path in ("/healthz", "/v1/hosts", "/nowhere", "/v1/hosts")
    ]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == len(ids)
    for answer in answers:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/", 404, "not_found"),
        ("GET", "/openapi.json", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/v1/hosts/", 404, "not_found"),
        ("DELETE", "/v1/runs", 405, "method_not_allowed"),
        ("GET", "/v1/quotes", 405, "method_not_allowed"),
    ],
)
def test_what_is_not_there(still: Door, method: str, path: str, status: int, code: str) -> None:
    still.refused(method, path, status, code)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'"text"',
        b"[" * 100_000,
        b'{"count": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_step_is_a_bad_request(still: Door, body: bytes) -> None:
    error = still.refused("POST", "/v1/runs", 400, "bad_request", content=body, headers=JSON)
    assert error["message"]


def test_a_body_must_say_that_it_is_json(still: Door) -> None:
    body = json.dumps(STEP).encode()
    still.refused(
        "POST", "/v1/runs", 400, "bad_request", content=body, headers={"Content-Type": "text/plain"}
    )


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_no_number_that_is_none_gets_in(still: Door, number: str) -> None:
    body = json.dumps(STEP).replace("10.0", number)
    assert number in body
    error = still.refused("POST", "/v1/quotes", 400, "bad_request", content=body, headers=JSON)
    assert error["details"]["fields"][0]["field"] == "spend_cap"


@pytest.mark.parametrize(
    ("change", "field", "near"),
    [
        ({"cuont": 3}, "cuont", "count"),
        ({"spendcap": 3}, "spendcap", "spend_cap"),
        ({"exec": {"sh": "true", "timeout": 3}}, "exec.timeout", "timeout_seconds"),
        ({"xyzzy": 3}, "xyzzy", None),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(
    still: Door, change: dict[str, Any], field: str, near: str | None
) -> None:
    error = still.refused("POST", "/v1/runs", 400, "unknown_field", json={**STEP, **change})
    assert [fault["field"] for fault in error["details"]["fields"]] == [field]
    assert field in error["message"]
    assert ("did you mean" in error["message"]) is (near is not None)
    assert near is None or f"did you mean {near}?" in error["message"]


def test_a_key_in_the_wrong_group_is_named_with_its_group(still: Door) -> None:
    groups = [{"snapshot": "a", "count": 1}, {"snapshot": "b", "count": 1, "evn": {}}]
    body = {"groups": groups, "spend_cap": 1.0, "hold_seconds": 1}
    error = still.refused("POST", "/v1/runs", 400, "unknown_field", json=body)
    assert error["message"] == "groups.1.evn: is not known; did you mean env?"


def test_a_query_that_is_not_known_is_refused(still: Door) -> None:
    error = still.refused("GET", "/v1/runs?labels=a", 400, "unknown_field")
    assert error["details"]["fields"] == [
        {"field": "query labels", "problem": "is not known; did you mean label?"}
    ]


@pytest.mark.parametrize("wait", ["-1", "25.1", "x", "nan", "inf"])
def test_no_answer_may_be_waited_for_longer_than_it_may_hang(still: Door, wait: str) -> None:
    error = still.refused("GET", f"/v1/runs/run_none?wait_seconds={wait}", 400, "bad_request")
    assert error["details"]["fields"][0]["field"] == "query wait_seconds"


@pytest.mark.parametrize("name", ["a%00b", "%ff", "a%20b", "x" * 65, "a%3Bb"])
def test_an_id_is_a_plain_word(still: Door, name: str) -> None:
    for path in ("/v1/runs/{}", "/v1/forks/{}", "/v1/builds/{}", "/v1/forks/fork_none/execs/{}"):
        error = still.refused("GET", path.format(name), 400, "bad_request")
        assert error["details"]["fields"][0]["field"].startswith("path ")


def test_values_are_never_repeated_to_the_caller(still: Door) -> None:
    secret = "sk-very-secret"
    for change in ({"exec": {"sh": 1, "env": {"KEY": [secret]}}}, {"count": secret}):
        answer = still.client.post("/v1/runs", json={**STEP, **change})
        assert answer.status_code == 400
        assert secret not in answer.text


def test_many_faults_are_told_in_bounds(still: Door) -> None:
    body = {**STEP, **{f"key{n}": 1 for n in range(1000)}}
    error = still.refused("POST", "/v1/runs", 400, "unknown_field", json=body)
    assert len(error["details"]["fields"]) == 20


def test_a_body_over_the_limit_is_refused_by_its_length_before_it_is_sent(still: Door) -> None:
    read = []

    def never() -> Iterator[bytes]:
        read.append("the body")
        yield b"{}"

    length = ("content-length", str(MAX_JSON_BYTES + 1))
    kind = ("content-type", "application/json")
    seen = raw(still, "POST", "/v1/runs", headers=[length, kind], chunks=never())
    assert seen.status == 413
    assert seen.error["code"] == "too_large"
    assert seen.error["details"] == {"limit_bytes": MAX_JSON_BYTES}
    assert read == []


def test_a_body_without_a_length_is_refused_at_the_limit(still: Door) -> None:
    taken = 0

    def chunks() -> Any:
        nonlocal taken
        while True:
            taken += 65536
            yield b" " * 65536

    seen = raw(
        still, "POST", "/v1/runs", headers=[("content-type", "application/json")], chunks=chunks()
    )
    assert (seen.status, seen.error["code"]) == (413, "too_large")
    assert taken <= MAX_JSON_BYTES + 65536


def test_a_fault_of_ours_tells_nothing_and_stays_in_the_log(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Any:
        raise RuntimeError("the inside")

    door.api.add_api_route("/v1/broken", broken)
    answer = door.client.get("/v1/broken")
    assert answer.status_code == 500
    error = answer.json()["error"]
    assert (error["code"], error["retryable"], error["details"]) == ("internal", False, {})
    assert "inside" not in answer.text
    assert error["request_id"] == answer.headers["x-request-id"]
    assert error["request_id"] in caplog.text
    assert "the inside" in caplog.text


def test_what_is_away_may_be_asked_again(door: Door) -> None:
    def away() -> Any:
        raise Unavailable("database_away", "the database does not answer")

    door.api.add_api_route("/v1/away", away)
    answer = door.client.get("/v1/away")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["retryable"] is True


def test_half_an_answer_never_looks_whole(door: Door) -> None:
    async def half() -> Any:
        yield b"half"
        raise RuntimeError("the disk is gone")

    door.api.add_api_route("/v1/half", lambda: StreamingResponse(half()))
    seen = raw(door, "GET", "/v1/half")
    assert (seen.status, seen.body, seen.whole) == (200, b"half", False)
    assert seen.broke is not None
