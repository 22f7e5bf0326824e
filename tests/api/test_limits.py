"""How often, how much at once, how long and how large: each limit met, told as it is, and over in the end."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from starlette.types import Message, Receive, Scope, Send

from app.api import limits
from app.api.limits import Allowances, Buckets, Pace, Throttle, WrongKeys
from app.api.main import create_api
from app.api.middleware import MAX_JSON_BYTES
from app.api.rendering import rendered
from app.api.routes.runs import REPORTS_LISTS
from app.api.schemas.run import Report
from app.domain.account import Caller
from app.errors import RateLimited
from tests.api.places import DOCUMENT, ROUTES
from tests.api.world import STEP, Door, raw

GENEROUS = Allowances()
FAILED: dict[str, Any] = {
    "kind": "guest_lost", "phase": "exec", "code": "guest_lost", "message": "m", "retryable": True,
    "task_may_have_caused": True, "evidence": {"forks": []}, "index": 0, "key": None,
    "snapshot": "task-suite@1", "attempt": 1, "host": "h", "cost_usd": 0.1, "replaced": False,
}  # fmt: skip
TEXTS = {"content-type": "application/json"}


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def with_allowances(door: Door, **changed: Any) -> Door:
    """The same world behind an API that grants less."""
    allowances = replace(GENEROUS, **changed)
    api = create_api(door.stage.ports, door.wakes, spool=Path("/tmp"), allowances=allowances)
    return replace(door, api=api)


def let_in(buckets: Buckets, who: str, now_s: float) -> bool:
    if buckets.wait_s(who, now_s) > 0:
        return False
    buckets.count(who, now_s)
    return True


def test_a_burst_is_let_in_and_then_the_pace() -> None:
    buckets = Buckets(Pace(10.0, 5))
    assert [let_in(buckets, "k", 0.0) for _ in range(6)] == [True] * 5 + [False]
    assert buckets.wait_s("k", 0.0) == pytest.approx(0.1, rel=1e-5)
    assert [let_in(buckets, "k", 0.1) for _ in range(2)] == [True, False]
    assert [let_in(buckets, "k", 60.0) for _ in range(6)] == [True] * 5 + [False]


def test_one_that_floods_takes_nothing_from_another() -> None:
    buckets = Buckets(Pace(1.0, 1))
    assert let_in(buckets, "flood", 0.0)
    assert not let_in(buckets, "flood", 0.0)
    assert let_in(buckets, "other", 0.0)


@given(
    st.lists(st.floats(0.0, 2.0), max_size=60),
    st.integers(1, 8),
    st.sampled_from([0.5, 1.0, 10.0, 500.0]),
)
def test_no_time_ever_lets_in_more_than_its_burst_and_its_pace(
    pauses: list[float], burst: int, per_second: float
) -> None:
    buckets = Buckets(Pace(per_second, burst))
    now_s, came = 0.0, []
    for pause in pauses:
        now_s += pause
        if let_in(buckets, "k", now_s):
            came.append(now_s)
    for first in range(len(came)):
        for last in range(first, len(came)):
            allowed = burst + (came[last] - came[first]) * per_second
            assert last - first + 1 <= allowed + 1e-5


def test_what_is_remembered_has_a_bound() -> None:
    buckets = Buckets(Pace(1.0, 2), remembered=10)
    for number in range(1000):
        buckets.count(f"guest {number}", number / 1000)
        assert len(buckets._due) <= 10


def test_a_key_that_calls_too_often_is_told_when_to_come_again(suite: Door) -> None:
    door = with_allowances(suite, requests=Pace(1.0, 3))
    statuses = [raw(door, "GET", "/v1/hosts").status for _ in range(3)]
    refused = raw(door, "GET", "/v1/hosts")
    assert (statuses, refused.status) == ([200] * 3, 429)
    assert (refused.error["code"], refused.error["retryable"]) == ("rate_limited", True)
    assert refused.headers["retry-after"] == "1"
    assert refused.error["details"]["retry_after_seconds"] == 1
    assert refused.headers["x-request-id"] == refused.error["request_id"]
    assert raw(replace(door, key=door.strange_key), "GET", "/v1/hosts").status == 200


def test_nobody_needs_a_key_to_ask_whether_the_server_lives(suite: Door) -> None:
    door = with_allowances(suite, requests=Pace(1.0, 1))
    assert [raw(door, "GET", "/healthz").status for _ in range(5)] == [200] * 5


def test_the_largest_step_may_call_from_all_of_its_forks_at_once() -> None:
    buckets = Buckets(GENEROUS.requests)
    assert all(let_in(buckets, "key", 0.0) for _ in range(5000))
    assert GENEROUS.in_flight >= 5000


def throttled(allowances: Allowances, app: Any, clock: Clock | None = None) -> Any:
    throttle = Throttle(app, allowances, clock or Clock())
    caller = Caller("project", "key", frozenset())

    async def call(sent: list[Message], send: Send | None = None) -> None:
        async def keep(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "state": {"caller": caller, "request_id": "req"}}
        await throttle(scope, None, send or keep)  # type: ignore[arg-type]

    return call


def test_a_key_has_so_many_requests_open_and_gets_the_place_back_when_one_ends() -> None:
    async def story() -> None:
        going = anyio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await going.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        call = throttled(replace(GENEROUS, in_flight=2), app)
        answers: list[list[Message]] = [[], [], []]
        async with anyio.create_task_group() as calls:
            calls.start_soon(call, answers[0])
            calls.start_soon(call, answers[1])
            await anyio.wait_all_tasks_blocked()
            await call(answers[2])
            assert answers[2][0]["status"] == 429
            going.set()
        assert [told[0]["status"] for told in answers[:2]] == [200, 200]
        again: list[Message] = []
        await call(again)
        assert again[0]["status"] == 200

    anyio.run(story)


def test_a_request_that_breaks_gives_its_place_back() -> None:
    async def story() -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            raise ValueError("broken")

        call = throttled(replace(GENEROUS, in_flight=1), app)
        for _ in range(3):
            with pytest.raises(ValueError, match="broken"):
                await call([])

    anyio.run(story)


def test_a_reader_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SLOWEST_READ_S", 0.01)
    closed: list[str] = []

    async def story() -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
            finally:
                closed.append("source")

        async def stuck(message: Message) -> None:
            await anyio.sleep_forever()

        await throttled(GENEROUS, app)([], stuck)

    anyio.run(story)
    assert closed == ["source"]


def test_a_key_has_so_many_streams(suite: Door) -> None:
    door = with_allowances(suite, streams=0)
    run_id = suite.post("/v1/runs", {"snapshot": "task-suite", "count": 1, "spend_cap": 1.0,
                                     "hold_seconds": 60}, 201)["run_id"]  # fmt: skip
    refused = raw(
        door, "GET", f"/v1/runs/{run_id}/events", headers=[("accept", "text/event-stream")]
    )
    assert (refused.status, refused.error["code"]) == (429, "rate_limited")


def wrong(door: Door, guess: str = "wrong") -> int:
    return raw(replace(door, key=guess), "GET", "/v1/hosts").status


def test_who_guesses_keys_is_slowed_down_and_right_keys_are_not_shut_out(suite: Door) -> None:
    door = with_allowances(suite, wrong_keys=Pace(0.001, 3))
    assert raw(door, "GET", "/v1/hosts").status == 200
    assert [wrong(door) for _ in range(5)] == [401, 401, 401, 429, 429]
    assert raw(door, "GET", "/v1/hosts").status == 200, "a key that opened here before"
    keys = door.stage.ports.keys
    _, fresh = keys.create("default", "late")
    assert wrong(door, fresh) == 429, (
        "of a key that is new here nothing is known: not even asked for"
    )


def test_a_key_that_opened_once_and_is_revoked_is_a_wrong_key_like_any_other(suite: Door) -> None:
    door = with_allowances(suite, wrong_keys=Pace(0.001, 2))
    keys = door.stage.ports.keys
    key, secret = keys.create("default", "stolen")
    assert wrong(door, secret) == 200
    keys.revoke(key.key_id)
    assert [wrong(door, secret) for _ in range(4)] == [401, 401, 429, 429]


def test_guesses_are_counted_for_an_address_and_of_ipv6_for_its_network() -> None:
    clock = Clock()
    guesses = WrongKeys(Pace(1.0, 1), clock)
    guesses.failed("10.0.0.1", "guess")
    guesses.failed("2001:db8::1", "guess")
    for address in ("10.0.0.1", "2001:db8::2", "2001:db8::ffff:1%eth0"):
        with pytest.raises(RateLimited):
            guesses.need_patience(address, "guess")
    for address in ("10.0.0.2", "2001:db8:0:1::1", "", "unix"):
        guesses.need_patience(address, "guess")
    clock.now_s += 1.0
    guesses.need_patience("10.0.0.1", "guess")


def test_a_url_has_a_bound(still: Door) -> None:
    long = raw(still, "GET", "/v1/runs", query="label=" + "a" * 9000)
    assert (long.status, long.error["code"]) == (414, "url_too_long")
    assert raw(still, "GET", "/v1/" + "a" * 9000).status == 414


def test_a_body_that_drips_is_not_waited_for(still: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.api.middleware.BODY_S", 0.01)
    seen = raw(still, "POST", "/v1/runs", headers=TEXTS.items(), chunks=[b"{"], silent=True)
    assert (seen.status, seen.error["code"], seen.error["retryable"]) == (
        408,
        "body_too_slow",
        True,
    )


@pytest.mark.parametrize("name", sorted(ROUTES))
def test_only_a_route_for_bytes_takes_more_than_json_may_have(still: Door, name: str) -> None:
    """What a route reads whole has the small bound, and its sender the short patience, whatever its method."""
    route = ROUTES[name]
    takes_bytes = "application/octet-stream" in DOCUMENT["paths"][route.path][
        route.method.lower()
    ].get("requestBody", {}).get("content", {})
    path = re.sub(r"{(\w+)}", lambda name: "0" * 64 if name[1] == "sha256" else "none", route.path)
    length = ("content-length", str(MAX_JSON_BYTES + 1))
    seen = raw(still, route.method, path, headers=[length], chunks=[b"x"])
    assert (seen.status == 413) is not takes_bytes


def test_an_upload_that_drips_is_not_waited_for(
    still: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each silence is short enough; all of them together are not."""
    monkeypatch.setattr("app.api.bodies.SLOWEST_BYTES_S", 1e9)
    moments = itertools.count(0.0, 30.0)
    monkeypatch.setattr("app.api.bodies.clock_s", lambda: next(moments))
    seen = raw(still, "PUT", "/v1/files/" + "0" * 64, chunks=[b"x"] * 100)
    assert (seen.status, seen.error["code"]) == (400, "upload_stalled")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"count": ' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"spend_cap": 1e999999}', "spend_cap: must be above 0"),
        (b'{"count": NaN}', ""),
        (b'{"snapshot": "\xff"}', "not UTF-8"),
    ],
)
def test_a_body_that_is_made_to_hurt_is_a_bad_request(
    still: Door, body: bytes, problem: str
) -> None:
    seen = raw(still, "POST", "/v1/runs", headers=TEXTS.items(), chunks=[body])
    assert seen.status == 400
    assert problem in seen.error["message"]


def test_a_long_report_is_made_in_pieces_and_says_what_a_short_one_would(suite: Door) -> None:
    run_id = suite.post("/v1/runs", STEP, 201)["run_id"]
    suite.stage.run_for(10)
    short = suite.get(f"/v1/runs/{run_id}/report")
    fork = {**short["forks"][0], "stdout_tail": 'x"\n' * 1000}
    failed = {**FAILED, "fork_id": fork["fork_id"]}
    told = {**short, "forks": [fork] * 300, "environment_failures": [failed] * 3}
    pieces = rendered(Report, told, REPORTS_LISTS)
    assert len(pieces) > 2
    assert max(map(len, pieces)) < 512 * 1024
    assert json.loads(b"".join(pieces)) == told
    alone = {name: value for name, value in short.items() if name != "forks"}
    assert suite.get(f"/v1/runs/{run_id}/report", forks=False) == alone
    assert json.loads(b"".join(rendered(Report, alone, REPORTS_LISTS))) == alone


def test_a_report_that_is_none_is_a_fault_and_no_half_of_an_answer(suite: Door) -> None:
    with pytest.raises(ValidationError):
        rendered(Report, {"run_id": "r", "forks": [{}]}, REPORTS_LISTS)
