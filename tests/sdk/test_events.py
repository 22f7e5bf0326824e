"""A run's events as an iterator: each once and in order, whatever becomes of the streams that they come in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from promigence import BadAnswer, NotFound, ServerUnreachable
from promigence._events import MOST_FAULTS
from promigence._sse import FRAME_LIMIT_BYTES, Frames
from promigence.cli import app
from promigence.cli.exits import ExitCode
from promigence.types import Event
from tests.sdk import shapes
from tests.sdk.wire import FakeTime, Wire, client_of, cut_off, ok, refused

SSE = {"Content-Type": "text/event-stream; charset=utf-8"}


def event(number: int, kind: str = "ready", **more: Any) -> Event:
    told: dict[str, Any] = {
        "run_id": "r-1",
        "number": number,
        "at": "2026-11-30T17:20:04.123Z",
        "kind": kind,
        "fork_id": "fork_1",
        "index": 3,
        "attempt_id": "att_1",
        "host": "host0",
        "reason": None,
        "data": {},
        **more,
    }
    return told  # type: ignore[return-value]


def frame(told: Event) -> bytes:
    return f"id: {told['number']}\nevent: {told['kind']}\ndata: {json.dumps(told)}\n\n".encode()


class Broken(httpx2.SyncByteStream):
    """A body that breaks off after these chunks."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self.chunks
        raise cut_off()

    def close(self) -> None:
        self.closed = True


def stream(*numbers: int, end: int | None = None) -> httpx2.Response:
    told = [event(number) for number in numbers]
    if end is not None:
        told.append(event(end, "run_ended", index=None, fork_id=None))
    return httpx2.Response(
        200, content=b"retry: 1000\n\n" + b"".join(map(frame, told)), headers=SSE
    )


def broken(*numbers: int, rest: bytes = b"") -> httpx2.Response:
    chunks = [*(frame(event(number)) for number in numbers), rest]
    return httpx2.Response(200, stream=Broken(*chunks), headers=SSE)


def heard(wire: Wire, time: FakeTime, after: int = 0) -> list[int]:
    with client_of(wire, time) as client:
        return [told["number"] for told in client.runs.events("r-1", after=after)]


def asked_after(wire: Wire) -> list[str | None]:
    return [request.headers.get("last-event-id") for request in wire.asked]


def test_a_run_is_heard_from_its_start_to_its_end(wire: Wire, time: FakeTime) -> None:
    wire.will(stream(1, 2, 3, end=4))
    assert heard(wire, time) == [1, 2, 3, 4]
    assert wire.lines == ["GET /v1/runs/r-1/events"]
    assert wire.asked[0].headers["accept"] == "text/event-stream"
    assert asked_after(wire) == ["0"]


def test_where_a_stream_breaks_the_next_goes_on(wire: Wire, time: FakeTime) -> None:
    half = frame(event(4))[:-20]
    wire.will(broken(2, 3, rest=half), refused(503, "unavailable", retryable=True))
    wire.will(cut_off(), stream(4), stream(5, end=6))
    assert heard(wire, time, after=1) == [2, 3, 4, 5, 6]
    assert asked_after(wire) == ["1", "3", "3", "3", "4"]
    assert all(pause > 0 for pause in time.pauses)


def test_what_was_heard_is_not_heard_again(wire: Wire, time: FakeTime) -> None:
    wire.will(stream(1, 2), stream(1, 2, 3, end=4))
    assert heard(wire, time) == [1, 2, 3, 4]


def test_nothing_is_left_of_a_run_that_was_heard_to_its_end(wire: Wire, time: FakeTime) -> None:
    wire.will(httpx2.Response(204))
    assert heard(wire, time, after=9) == []


def test_a_stream_that_breaks_at_once_is_given_up_in_the_end(wire: Wire, time: FakeTime) -> None:
    wire.will(stream(1), *(broken() for _ in range(MOST_FAULTS + 1)))
    with (
        client_of(wire, time) as client,
        pytest.raises(ServerUnreachable, match="breaks off again and again"),
    ):
        list(client.runs.events("r-1"))


def test_a_stream_that_lasted_without_news_is_no_fault(wire: Wire, time: FakeTime) -> None:
    class Long(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            for _ in range(60):
                time.now += 10
                yield b": nothing new\n\n"

    quiet = (httpx2.Response(200, stream=Long(), headers=SSE) for _ in range(2 * MOST_FAULTS))
    wire.will(*quiet, stream(1, end=2))
    assert heard(wire, time) == [1, 2]


def test_whoever_stops_listening_gives_the_connection_back(wire: Wire, time: FakeTime) -> None:
    body = Broken(frame(event(1)), frame(event(2)))
    wire.will(httpx2.Response(200, stream=body, headers=SSE))
    with client_of(wire, time) as client:
        events = client.runs.events("r-1")
        assert next(events)["number"] == 1
        events.close()  # type: ignore[attr-defined]
    assert body.closed


@pytest.mark.parametrize(
    "told",
    [
        b"data: not json\n\n",
        b"data: [1]\n\n",
        b'data: {"number": 1}\n\n',
        frame(event(3)),
        frame(event("1")),  # type: ignore[arg-type]
        b"data: " + b"x" * (FRAME_LIMIT_BYTES + 1),
        b"data: xxxxxxxx\n" * (FRAME_LIMIT_BYTES // 10),
    ],
)
def test_what_is_no_stream_of_ours_is_a_bad_answer(wire: Wire, time: FakeTime, told: bytes) -> None:
    wire.will(httpx2.Response(200, content=told, headers=SSE))
    with client_of(wire, time) as client, pytest.raises(BadAnswer):
        list(client.runs.events("r-1"))


def test_another_kind_of_answer_is_a_bad_answer(wire: Wire, time: FakeTime) -> None:
    wire.will(ok({"events": []}))
    with client_of(wire, time) as client, pytest.raises(BadAnswer, match="application/json"):
        list(client.runs.events("r-1"))


def test_an_unknown_run_is_not_found(wire: Wire, time: FakeTime) -> None:
    wire.will(refused(404, "unknown_run"))
    with client_of(wire, time) as client, pytest.raises(NotFound):
        list(client.runs.events("r-1"))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_frames_are_the_same_however_their_bytes_come(size: int) -> None:
    told = ": a comment\n\nretry: 5\n\nid: 1\ndata: één\n\ndata: a\r\ndata:b\r\n\r\nevent: x\n\ndata: half"
    raw, frames = told.encode(), Frames()
    pieces = [raw[begin : begin + size] for begin in range(0, len(raw), size)]
    assert [data for piece in pieces for data in frames.feed(piece)] == ["één", "a\nb"]


def watched(wire: Wire, time: FakeTime, *args: str) -> Result:
    command = ("runs", "watch", "r-1", *args)
    return CliRunner().invoke(app, command, obj=lambda: client_of(wire, time))


def test_watch_has_a_line_for_each_event(wire: Wire, time: FakeTime) -> None:
    failure = {"kind": "guest_lost", "phase": "exec", "message": "it died\n\x1b[31m"}
    told = [
        event(1, "run_started", index=None, data={"forks": 20, "snapshots": ["a@1"]}),
        event(2, "placed", reason="warm here"),
        event(3, "attempt_failed", reason="guest_lost", data={"failure": failure}),
        event(4, "fork_ended", reason="command_passed", data={"outcome": "passed", "reward": 1.0}),
        event(5, "a_kind_of_tomorrow", reason="because"),
        event(6, "run_ended", index=None, data={"outcomes": {"passed": 1, "env_failed": 1}}),
    ]
    wire.will(httpx2.Response(200, content=b"".join(map(frame, told)), headers=SSE))
    wire.will(ok(shapes.run("r-1", passed=1, env_failed=1)))
    result = watched(wire, time)
    assert result.exit_code == ExitCode.ENVIRONMENT_FAILED
    lines = [line.split(maxsplit=2) for line in result.stdout.splitlines()]
    assert [line[2].rstrip() for line in lines] == [
        "run       run_started       20 forks of a@1",
        "fork 3    placed            on host0: warm here",
        "fork 3    attempt_failed    guest_lost in exec: it died \ufffd[31m",
        "fork 3    fork_ended        passed (command_passed), reward 1.0",
        "fork 3    a_kind_of_tomorrow because",
        "run       run_ended         1 passed, 1 env_failed",
    ]


def test_watch_gives_json_line_by_line_from_any_number(wire: Wire, time: FakeTime) -> None:
    wire.will(stream(8, 9, end=10), ok(shapes.run("r-1", passed=2)))
    result = watched(wire, time, "--json", "--after", "7")
    assert result.exit_code == 0
    assert [json.loads(line)["number"] for line in result.stdout.splitlines()] == [8, 9, 10]
    assert asked_after(wire)[0] == "7"


def test_ctrl_c_says_how_to_go_on(wire: Wire, time: FakeTime) -> None:
    class Interrupted(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield frame(event(1)) + frame(event(2))
            raise KeyboardInterrupt

    wire.will(httpx2.Response(200, stream=Interrupted(), headers=SSE))
    result = watched(wire, time)
    assert result.exit_code == ExitCode.INTERRUPTED
    assert "promigence runs watch r-1 --after 2" in result.stderr
    assert len(wire.asked) == 1


def test_a_report_says_that_its_rule_stopped_the_run(wire: Wire, time: FakeTime) -> None:
    report = shapes.report(shapes.fork_report(0, "env_failed", None))
    report["stopped"] = {
        "stop_when": {"env_failed_share": 0.2},
        "env_failed": 4,
        "forks": 16,
        "at": "2026-11-30T17:20:04.123Z",
    }
    wire.will(ok(report))
    command = ("runs", "report", "r-1")
    result = CliRunner().invoke(app, command, obj=lambda: client_of(wire, time))
    assert "the environment failed 4 forks (stop_when env_failed_share 0.2)" in result.stdout


def test_a_rule_goes_into_quote_and_start(wire: Wire, time: FakeTime) -> None:
    wire.will(ok(shapes.quote()))
    command = ("runs", "quote", "a", "--count", "2", "--spend-cap", "1")
    CliRunner().invoke(
        app,
        (*command, "--stop-when-env-failed-share", "0.2"),
        obj=lambda: client_of(wire, time),
    )
    assert wire.body()["stop_when"] == {"env_failed_share": 0.2}
