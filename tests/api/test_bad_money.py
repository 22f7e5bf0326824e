"""Amounts, counts, quotes and repeated calls that will not do: a clear error that names the field, and no row of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, inspect, select, table

from app.domain.machine import Shape
from app.domain.rates import Price, RateCard
from tests.api.world import DEFINITION, STEP, Door, open_door
from tests.flow.stage import Stage, definition, sim

JSON = {"Content-Type": "application/json"}
BUILD = {"definition": DEFINITION}

# As they stand in a body: values that JSON allows, or that many a JSON library writes all the same.
NO_AMOUNTS = {
    "negative": "-1",
    "zero": "0",
    "minus zero": "-0.0",
    "below a micro-dollar": "9e-7",
    "NaN": "NaN",
    "infinite": "Infinity",
    "minus infinite": "-Infinity",
    "beyond a float": "1e400",
    "minus beyond a float": "-1e400",
    "huge": "100000000.01",
    "huge and whole": "9" * 400,
    "a word": '"abc"',
    "a text of digits": '"1.0"',
    "digits of another script": '"\\uff11"',
    "true": "true",
    "null": "null",
    "a list": "[1]",
    "an object": '{"usd": 1}',
}
# No JSON at all; where it breaks is said, not in which field.
NO_JSON = {
    "underscores": "1_000",
    "digits of another script": "\uff11",
    "hexadecimal": "0x10",
    "a plus sign": "+1",
    "no digit before the point": ".5",
    "no digit after the point": "1.",
    "an octal": "010",
    "more digits than are read": "9" * 5000,
}
MONEY = [
    ("/v1/quotes", STEP, "spend_cap"),
    ("/v1/runs", STEP, "spend_cap"),
    ("/v1/snapshots", BUILD, "definition.spend_cap"),
]


def _rows(door: Door) -> dict[str, int]:
    """How many rows each table has; that of the audit log has the refusals too."""
    with door.stage.stores.database.read() as at:
        names = [name for name in inspect(at).get_table_names() if name != "audit"]
        counts = {
            name: at.scalar(select(func.count()).select_from(table(name))) or 0 for name in names
        }
    assert counts["run"] > 0, "a deployment with something in it"
    return counts


@contextmanager
def _no_row_of_it(door: Door) -> Iterator[None]:
    before = _rows(door)
    yield
    assert _rows(door) == before


def _body(step: dict[str, Any], field: str, value: str) -> bytes:
    """The body with a value in the field that `json.dumps` would not write."""
    *parents, name = field.split(".")
    body = json.loads(json.dumps(step))
    place = body
    for parent in parents:
        place = place[parent]
    place[name] = "the value"
    return json.dumps(body).replace('"the value"', value).encode()


@pytest.mark.parametrize("value", NO_AMOUNTS.values(), ids=NO_AMOUNTS.keys())
@pytest.mark.parametrize(("path", "step", "field"), MONEY, ids=["quote", "start", "build"])
def test_a_cap_that_is_no_amount_is_refused_by_its_name(
    still: Door, path: str, step: dict[str, Any], field: str, value: str
) -> None:
    headers = {**JSON, "Idempotency-Key": "money"}
    with _no_row_of_it(still):
        error = still.refused(
            "POST", path, 400, "bad_request", content=_body(step, field, value), headers=headers
        )
    assert [fault["field"] for fault in error["details"]["fields"]] == [field]
    assert error["message"].startswith(f"{field}: ")
    assert len(error["message"]) < 200


@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON.keys())
@pytest.mark.parametrize(("path", "step", "field"), MONEY, ids=["quote", "start", "build"])
def test_a_number_that_json_does_not_have_is_refused(
    still: Door, path: str, step: dict[str, Any], field: str, value: str
) -> None:
    with _no_row_of_it(still):
        error = still.refused(
            "POST", path, 400, "bad_request", content=_body(step, field, value), headers=JSON
        )
    assert "JSON" in error["message"]
    assert ("at character" in error["message"]) != ("too many digits" in error["message"])


@pytest.mark.parametrize("path", ["/v1/quotes", "/v1/runs"])
def test_a_step_without_a_cap_is_refused(still: Door, path: str) -> None:
    step = {name: value for name, value in STEP.items() if name != "spend_cap"}
    with _no_row_of_it(still):
        error = still.refused("POST", path, 400, "bad_request", json=step)
    assert error["message"] == "spend_cap: Field required"


@pytest.mark.parametrize("path", ["/v1/quotes", "/v1/runs"])
@pytest.mark.parametrize("count", [0, -1, 2001, 10**400, -(10**400)], ids=range(5))
def test_a_count_out_of_range_is_refused_in_few_words(still: Door, path: str, count: int) -> None:
    with _no_row_of_it(still):
        error = still.refused(
            "POST", path, 400, "count_out_of_range", json={**STEP, "count": count}
        )
    assert error["details"] == {"field": "count", "limit": 2000}
    assert "count" in error["message"]
    assert len(error["message"]) < 200


@pytest.mark.parametrize("path", ["/v1/quotes", "/v1/runs"])
@pytest.mark.parametrize(
    "field",
    ["count", "hold_seconds", "environment_retries", "queue_timeout_seconds", "grade", "exec"],
)
@pytest.mark.parametrize("value", ["NaN", "1e400", "true", '"7"', "-1.5", "[]"])
def test_whatever_a_price_is_made_of_is_a_number_in_its_bounds(
    still: Door, path: str, field: str, value: str
) -> None:
    step = {
        name: value for name, value in STEP.items() if name != "exec" or field != "hold_seconds"
    }
    if field in ("grade", "exec"):
        step[field], field = {"sh": "true"}, f"{field}.timeout_seconds"
    with _no_row_of_it(still):
        error = still.refused(
            "POST", path, 400, "bad_request", content=_body(step, field, value), headers=JSON
        )
    assert [fault["field"] for fault in error["details"]["fields"]] == [field]


@pytest.mark.parametrize("path", ["/v1/quotes", "/v1/runs"])
def test_a_cap_that_funds_nothing_is_refused_with_the_one_that_does(still: Door, path: str) -> None:
    with _no_row_of_it(still):
        error = still.refused(
            "POST", path, 400, "cap_too_small", json={**STEP, "spend_cap": 0.000001}
        )
    assert 0.000001 < error["details"]["smallest_cap_usd"] < 0.01


def test_a_refused_call_leaves_its_idempotency_key_free(suite: Door) -> None:
    headers = {"Idempotency-Key": "again"}
    suite.refused(
        "POST", "/v1/runs", 400, "bad_request", json={**STEP, "spend_cap": -1}, headers=headers
    )
    assert suite.post("/v1/runs", STEP, 201, key="again")["run_id"]


def test_a_replayed_key_with_another_body_is_refused_and_the_first_answer_stands(
    suite: Door,
) -> None:
    first = suite.post("/v1/runs", STEP, 201, key="once")
    headers = {"Idempotency-Key": "once"}
    with _no_row_of_it(suite):
        for other in (
            {"spend_cap": 9.0},
            {"count": 3},
            {"spend_cap": "abc"},
            {"labels": {"a": "b"}},
        ):
            body = {**STEP, **other}
            refused = suite.client.post("/v1/runs", json=body, headers=headers)
            assert refused.status_code in (400, 409), refused.text
            code = refused.json()["error"]["code"]
            assert code == ("bad_request" if "abc" in other.values() else "idempotency_mismatch")
        assert suite.post("/v1/runs", STEP, 201, key="once") == first


def test_an_expired_quote_starts_nothing(suite: Door) -> None:
    quote_id = suite.post("/v1/quotes", STEP)["quote_id"]
    suite.stage.clock.advance(901)
    with _no_row_of_it(suite):
        error = suite.refused(
            "POST", "/v1/runs", 409, "quote_expired", json={**STEP, "quote_id": quote_id}
        )
    assert quote_id in error["message"]


def test_a_quote_of_another_snapshot_starts_nothing(suite: Door) -> None:
    """Another name, and another version of the same name: the quote was for the one that it pinned."""
    quote_id = suite.post("/v1/quotes", STEP)["quote_id"]
    suite.stage.build(definition(name="other-suite"))
    suite.stage.build(definition(test=sim("2s exit 0")))
    with _no_row_of_it(suite):
        for named in ("other-suite", "task-suite", "task-suite@2"):
            body = {**STEP, "snapshot": named, "quote_id": quote_id}
            suite.refused("POST", "/v1/runs", 409, "quote_mismatch", json=body)
    pinned = {**STEP, "snapshot": "task-suite@1", "quote_id": quote_id}
    assert suite.post("/v1/runs", pinned, 201)["quote"]["quote_id"] == quote_id


def test_a_quote_of_another_project_is_not_there(suite: Door) -> None:
    """The same snapshot and arguments: only whose quote it is differs, and a stranger cannot tell that it is one."""
    quote_id = suite.post("/v1/quotes", STEP)["quote_id"]
    suite.client.headers.update(suite.as_stranger())
    definition_of_theirs = {**BUILD, "definition": {**DEFINITION, "spend_cap": 0.5}}
    suite.post("/v1/snapshots", definition_of_theirs, 202)
    suite.stage.run_for(60)
    assert suite.get("/v1/snapshots/task-suite")["snapshot"] == "task-suite@1"
    errors = []
    with _no_row_of_it(suite):
        for asked in (quote_id, "quote_none"):
            body = {**STEP, "quote_id": asked}
            error = suite.refused("POST", "/v1/runs", 404, "unknown_quote", json=body)
            errors.append(error["message"].replace(asked, "it"))
    assert errors[0] == errors[1]


def test_a_shape_that_the_card_has_no_price_for_is_refused(tmp_path: Path) -> None:
    """By a quote, a start and a build: the message names the shape, the card and the largest shape that it has."""
    stage = Stage(tmp_path)
    stage.build(definition())
    small = RateCard("small-1", (Price(Shape(1, 64, 1), 1, 2),))
    stage.ports = replace(stage.ports, rates=small)
    door = open_door(stage, tmp_path)
    with door.client, _no_row_of_it(door):
        for path, body in (("/v1/quotes", STEP), ("/v1/runs", STEP), ("/v1/snapshots", BUILD)):
            message = door.refused("POST", path, 400, "shape_not_priced", json=body)["message"]
            assert "small-1" in message
            assert "512 MiB" in message
            assert "64 MiB" in message
    stage.stores.close()


@pytest.mark.parametrize("quote_id", ["", "a b", "x" * 65, 7, "quote\u0000"])
def test_a_quote_that_is_no_id_is_refused(still: Door, quote_id: object) -> None:
    with _no_row_of_it(still):
        error = still.refused(
            "POST", "/v1/runs", 400, "bad_request", json={**STEP, "quote_id": quote_id}
        )
    assert error["details"]["fields"][0]["field"] == "quote_id"
