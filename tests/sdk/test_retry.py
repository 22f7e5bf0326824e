from __future__ import annotations

import httpx2
import pytest

from promigence import (
    BadRequest,
    DeadlineExceeded,
    Promigence,
    RateLimited,
    ServerUnreachable,
    Unavailable,
)
from promigence._retry import Retries
from tests.sdk import shapes
from tests.sdk.wire import FakeTime, Wire, client_of, cut_off, ok, refused, unreachable

FAULTS = [
    httpx2.ConnectError("refused"),
    httpx2.ReadError("reset"),
    httpx2.RemoteProtocolError("server disconnected"),
    httpx2.ReadTimeout("slow"),
    httpx2.Response(502, text="<html>bad gateway</html>"),
    httpx2.Response(504, text=""),
    refused(429, "rate_limited", retryable=True),
    refused(503, "unavailable", retryable=True),
    refused(409, "idempotency_in_progress", retryable=True),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_start_is_sent_again_under_the_same_key(
    fault: httpx2.Response | Exception, client: Promigence, wire: Wire, time: FakeTime
) -> None:
    wire.will(fault, ok(shapes.started(), 201))
    assert client.runs.start("task-suite", count=2, spend_cap=1.0)["run_id"] == "r-1"
    first, second = wire.keys()
    assert first is not None
    assert first == second
    assert wire.body(0) == wire.body(1)
    assert len(time.pauses) == 1


def test_two_calls_have_two_keys(client: Promigence, wire: Wire) -> None:
    wire.will(ok(shapes.started(), 201), ok(shapes.started("r-2"), 201))
    client.runs.start("task-suite", count=2, spend_cap=1.0)
    client.runs.start("task-suite", count=2, spend_cap=1.0)
    assert len(set(wire.keys())) == 2


def test_a_callers_key_is_used_and_stays_out_of_the_body(client: Promigence, wire: Wire) -> None:
    wire.will(ok(shapes.started(), 201))
    client.runs.start("task-suite", count=2, spend_cap=1.0, idempotency_key="step-17")
    assert wire.keys() == ["step-17"]
    assert "idempotency_key" not in wire.body()


def test_a_refusal_is_not_sent_again(client: Promigence, wire: Wire, time: FakeTime) -> None:
    wire.will(refused(400, "cap_too_small", details={"smallest_cap_usd": 0.04}))
    with pytest.raises(BadRequest) as caught:
        client.runs.start("task-suite", count=2, spend_cap=0.01)
    assert caught.value.details == {"smallest_cap_usd": 0.04}
    assert time.pauses == []


def test_retry_after_is_a_floor(client: Promigence, wire: Wire, time: FakeTime) -> None:
    wire.will(
        refused(429, "rate_limited", retryable=True, headers=[("Retry-After", "7")]),
        ok(shapes.quote()),
    )
    client.runs.quote("task-suite", count=2, spend_cap=1.0)
    (pause,) = time.pauses
    assert 7.0 < pause < 7.5


def test_retry_after_beyond_the_deadline_is_told_at_once(
    client: Promigence, wire: Wire, time: FakeTime
) -> None:
    wire.will(refused(429, "rate_limited", retryable=True, headers=[("Retry-After", "3600")]))
    with pytest.raises(RateLimited):
        client.runs.quote("task-suite", count=2, spend_cap=1.0)
    assert time.pauses == []


def test_the_deadline_is_one_for_all_attempts(wire: Wire, time: FakeTime) -> None:
    client = client_of(wire, time, timeout=20.0)
    begun = time.now
    wire.will(*(refused(503, "unavailable", retryable=True) for _ in range(8)))
    with client, pytest.raises(DeadlineExceeded) as caught:
        client.runs.get("r-1")
    assert isinstance(caught.value.__cause__, Unavailable)
    assert "about unavailable" in str(caught.value)
    assert time.now - begun <= 20.0


def test_pauses_double_up_to_a_bound_and_spread() -> None:
    retries = Retries()
    most = [retries.pause_seconds(attempt, None, 1.0) for attempt in range(1, 9)]
    least = [retries.pause_seconds(attempt, None, 0.0) for attempt in range(1, 9)]
    assert most == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert least == [pause / 2 for pause in most]
    assert retries.pause_seconds(100_000, None, 1.0) == 8.0


def test_a_server_that_was_never_there_is_told_of_soon(
    client: Promigence, wire: Wire, time: FakeTime
) -> None:
    begun = time.now
    wire.will(*(unreachable() for _ in range(5)))
    with pytest.raises(ServerUnreachable) as caught:
        client.hosts.list()
    assert time.now - begun < 4.0
    assert "http://promigence.test" in caught.value.message
    assert "make up" in caught.value.message


def test_a_server_that_was_there_is_waited_for(
    client: Promigence, wire: Wire, time: FakeTime
) -> None:
    wire.will(ok({"hosts": [], "next_cursor": None}))
    client.hosts.list()
    begun = time.now
    wire.will(*(unreachable() for _ in range(7)), ok({"hosts": [], "next_cursor": None}))
    assert client.hosts.list() == []
    assert time.now - begun > 10.0


def test_a_read_is_sent_again_too(client: Promigence, wire: Wire) -> None:
    wire.will(cut_off(), ok(shapes.report(shapes.fork_report(0, "passed", 1.0))))
    assert client.runs.report("r-1")["final"]
    assert wire.lines == ["GET /v1/runs/r-1/report?forks=true"] * 2


def test_a_request_that_cannot_be_sent_is_not_tried_for_a_minute(
    client: Promigence, wire: Wire, time: FakeTime
) -> None:
    wire.will(httpx2.LocalProtocolError("too much data for declared Content-Length"))
    with pytest.raises(ServerUnreachable) as caught:
        client.runs.get("r-1")
    assert not caught.value.retryable
    assert time.pauses == []
