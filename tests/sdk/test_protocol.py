from __future__ import annotations

import json
from decimal import Decimal

import pytest

from promigence import (
    BadAnswer,
    BadDefinition,
    BadRequest,
    Conflict,
    EnvironmentFailure,
    Forbidden,
    NotFound,
    PromigenceError,
    RateLimited,
    ServerError,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from promigence._protocol import (
    Answer,
    Request,
    error_of,
    expect,
    expect_list,
    fault_of,
    path_of,
    query_of,
    retry_after_seconds,
)
from promigence.types import Deleted, Quote
from tests.sdk import shapes


def answer(body: object, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, named, json.dumps(body).encode())


def told(status: int, code: str, **rest: object) -> Answer:
    return answer({"error": {"code": code, "message": "m", "request_id": "req-1", **rest}}, status)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "cap_too_small", BadRequest),
        (422, "bad_request", BadRequest),
        (400, "bad_definition", BadDefinition),
        (401, "unauthorized", Unauthorized),
        (403, "egress_not_allowed", Forbidden),
        (404, "unknown_snapshot", NotFound),
        (409, "quote_mismatch", Conflict),
        (413, "too_large", TooLarge),
        (429, "rate_limited", RateLimited),
        (500, "internal", ServerError),
        (503, "unavailable", Unavailable),
    ],
)
def test_an_error_answer_becomes_its_class(
    status: int, code: str, kind: type[PromigenceError]
) -> None:
    error = error_of(told(status, code, details={"limit": 7}))
    assert type(error) is kind
    assert (error.code, error.status, error.request_id) == (code, status, "req-1")
    assert error.message == "m"
    assert error.details == {"limit": 7}


def test_a_lost_machine_is_an_environment_failure_with_its_evidence() -> None:
    details = {"failure": shapes.failure("guest_panicked"), "fork_id": "f-3"}
    error = error_of(told(409, "environment_failure", details=details))
    assert isinstance(error, EnvironmentFailure)
    assert error.fork_id == "f-3"
    assert error.failure["evidence"] == {"exit_signal": 9}
    assert not error.retryable


@pytest.mark.parametrize("body", [b"<html>502</html>", b"", b"[]", b'{"error": "text"}', b"\xff"])
def test_an_error_that_is_not_ours_keeps_status_and_request_id(body: bytes) -> None:
    error = error_of(Answer(502, {"x-request-id": "req-7"}, body))
    assert type(error) is ServerError
    assert (error.code, error.request_id, error.retryable) == ("http_502", "req-7", True)


def test_the_server_decides_what_may_be_sent_again() -> None:
    assert error_of(told(409, "idempotency_in_progress", retryable=True)).retryable
    assert not error_of(told(503, "unavailable", retryable=False)).retryable


def test_a_redirect_is_not_followed_with_the_key_in_hand() -> None:
    fault = fault_of(Request("GET", "/v1/runs"), Answer(302, {"location": "http://else.where"}))
    assert isinstance(fault, BadAnswer)


@pytest.mark.parametrize("body", [b"", b"no json", b"[1]", b'"text"', b"[" * 100_000])
def test_a_good_status_with_another_body_is_a_bad_answer(body: bytes) -> None:
    with pytest.raises(BadAnswer, match="not Promigence's"):
        expect(Answer(200, {}, body), Quote)


def test_a_missing_key_of_the_contract_is_named() -> None:
    body = {key: value for key, value in shapes.quote().items() if key != "max_cost_usd"}
    with pytest.raises(BadAnswer, match="Quote without max_cost_usd"):
        expect(answer(body), Quote)


def test_a_key_that_is_new_is_kept() -> None:
    assert expect(answer({"deleted": [], "new": 1}), Deleted) == {"deleted": [], "new": 1}


@pytest.mark.parametrize("body", [{}, {"things": {}}, {"things": [1]}, {"things": [{"other": 1}]}])
def test_a_list_without_its_things_is_a_bad_answer(body: object) -> None:
    with pytest.raises(BadAnswer, match="no list of Deleted"):
        expect_list(answer(body), "things", Deleted)


def test_a_name_cannot_walk_out_of_its_place() -> None:
    assert path_of("snapshots", "../keys?x#y") == "/v1/snapshots/..%2Fkeys%3Fx%23y"
    assert path_of("snapshots", "task-suite@3") == "/v1/snapshots/task-suite@3"


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_a_name_that_is_no_name_is_refused(part: str) -> None:
    with pytest.raises(BadRequest, match="is no name"):
        path_of("runs", part, "report")


def test_a_query_leaves_out_what_is_not_given() -> None:
    assert query_of(forks=False, cursor=None, limit=5) == (("forks", "false"), ("limit", "5"))


def test_what_json_has_no_word_for_is_refused() -> None:
    for value in (float("nan"), float("-inf"), object(), b"bytes", 10**5000, Decimal(1)):
        with pytest.raises(BadRequest, match=r"^spend_cap cannot be sent"):
            _ = Request("POST", "/v1/runs", json={"count": 1, "spend_cap": value}).body
        with pytest.raises(BadRequest, match=r"^definition\.spend_cap cannot be sent"):
            _ = Request("POST", "/v1/snapshots", json={"definition": {"spend_cap": value}}).body
    with pytest.raises(BadRequest, match=r"^spend_cap cannot be sent: it is no finite number"):
        _ = Request("POST", "/v1/runs", json={"spend_cap": float("nan")}).body
    circle: dict[str, object] = {}
    circle["env"] = circle
    with pytest.raises(BadRequest, match=r"^env\.env\.\S* cannot be sent: Circular"):
        _ = Request("POST", "/v1/runs", json=circle).body


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        (
            {
                "retry-after": "Mon, 30 Nov 2026 17:20:30 GMT",
                "date": "Mon, 30 Nov 2026 17:20:00 GMT",
            },
            30.0,
        ),
        ({"retry-after": "Mon, 30 Nov 2026 17:20:30 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after_in_both_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(Answer(429, headers)) == seconds
