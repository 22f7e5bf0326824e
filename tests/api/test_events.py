"""What happens in a run, as a stream and as pages."""

from __future__ import annotations

import json
import threading
from typing import Any

import anyio
import pytest
from anyio import to_thread

from app.api import watching
from app.api.watching import EventStream, Watchers
from app.errors import RateLimited, Unavailable
from tests.api.world import STEP, Door, raw

SSE = (("accept", "text/event-stream"),)


def test_a_stream_tells_a_run_from_its_start_to_its_end(suite: Door) -> None:
    run_id = suite.post("/v1/runs", STEP, 201)["run_id"]
    seen = raw(suite, "GET", f"/v1/runs/{run_id}/events", headers=SSE)
    assert seen.whole
    assert seen.headers["content-type"].startswith("text/event-stream")
    assert seen.headers["cache-control"] == "no-store"
    frames = frames_of(seen.body)
    assert [int(frame["id"]) for frame in frames] == list(range(1, len(frames) + 1))
    told = [json.loads(frame["data"]) for frame in frames]
    assert [frame["event"] for frame in frames] == [event["kind"] for event in told]
    kinds = [event["kind"] for event in told if event["index"] in (None, 0)]
    assert kinds == [
        "run_started",
        "placed",
        "restoring",
        "checking",
        "ready",
        "command_intended",
        "command_ended",
        "fork_ended",
        "run_ended",
    ]
    assert told[-1]["data"] == {"outcomes": {"passed": 2}}
    assert told == suite.get(f"/v1/runs/{run_id}/events", format="json", limit=500)["events"]


def test_a_broken_stream_goes_on_after_the_last_that_was_heard(suite: Door) -> None:
    run_id = ended_run(suite)
    whole = numbers(raw(suite, "GET", f"/v1/runs/{run_id}/events", headers=SSE).body)
    for header, query in (((("last-event-id", "5"),), ""), ((), "after=5")):
        path = f"/v1/runs/{run_id}/events"
        seen = raw(suite, "GET", path, headers=(*SSE, *header), query=query)
        assert numbers(seen.body) == whole[5:]
    both = raw(
        suite,
        "GET",
        f"/v1/runs/{run_id}/events",
        headers=(*SSE, ("last-event-id", "7")),
        query="after=2",
    )
    assert numbers(both.body) == whole[7:]


def test_nothing_is_left_of_a_run_that_was_heard_to_its_end(suite: Door) -> None:
    run_id = ended_run(suite)
    last = suite.get(f"/v1/runs/{run_id}/events", format="json", limit=500)["next"]
    seen = raw(suite, "GET", f"/v1/runs/{run_id}/events", query=f"after={last}", headers=SSE)
    assert (seen.status, seen.body) == (204, b"")


def test_pages_follow_each_other_to_the_end(suite: Door) -> None:
    run_id = ended_run(suite)
    heard: list[int] = []
    page: dict[str, Any] = {"next": 0, "final": False}
    while not page["final"]:
        page = suite.client.get(
            f"/v1/runs/{run_id}/events",
            params={"after": page["next"], "limit": 4},
            headers={"Accept": "application/json"},
        ).json()
        heard += [event["number"] for event in page["events"]]
    assert heard == list(range(1, heard[-1] + 1))


def test_a_silent_run_is_heard_to_be_alive(suite: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "BEAT_S", -1.0)
    run_id = suite.post("/v1/runs", STEP, 201)["run_id"]
    assert watching.BEAT in raw(suite, "GET", f"/v1/runs/{run_id}/events", headers=SSE).body


def test_a_stream_that_lasts_long_is_to_be_asked_for_again(
    suite: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "STREAM_S", -1.0)
    run_id = suite.post("/v1/runs", STEP, 201)["run_id"]
    seen = raw(suite, "GET", f"/v1/runs/{run_id}/events", headers=SSE)
    assert seen.whole
    assert numbers(seen.body) == [1]


def test_a_run_of_another_project_is_none(suite: Door) -> None:
    run_id = ended_run(suite)
    for accept in ("text/event-stream", "application/json"):
        headers = {**suite.as_stranger(), "Accept": accept}
        suite.refused("GET", f"/v1/runs/{run_id}/events", 404, "unknown_run", headers=headers)


@pytest.mark.parametrize("told", ["", "one", "-1", "1.5", "9" * 30, "٣"])
def test_a_number_that_is_none_is_refused(still: Door, told: str) -> None:
    headers = {"Last-Event-ID": told.encode()}
    still.refused("GET", "/v1/runs/run_1/events", 400, "bad_request", headers=headers)


@pytest.mark.parametrize("query", ["after=-1", "after=x", "format=xml", "limit=0", "since=1"])
def test_a_query_that_means_nothing_is_refused(still: Door, query: str) -> None:
    assert still.client.get(f"/v1/runs/run_1/events?{query}").status_code == 400


def test_more_streams_than_may_be_are_refused(suite: Door) -> None:
    run_id = ended_run(suite)
    suite.api.state.context.watchers.most = 0
    error = suite.refused(
        "GET",
        f"/v1/runs/{run_id}/events",
        503,
        "too_many_streams",
        headers={"Accept": "text/event-stream"},
    )
    assert error["retryable"]


def test_streams_that_are_opened_at_once_are_counted_before_their_first_page(door: Door) -> None:
    """Of one key, and of all together."""
    read = threading.Event()

    def first(_after: int) -> watching.Page:
        assert read.wait(10)
        return page_of(1)

    async def open_all(watchers: Watchers) -> list[BaseException]:
        refused: list[BaseException] = []

        async def open_one(number: int) -> None:
            try:
                await watchers.page(first, 0, "key")
            except (RateLimited, Unavailable) as full:
                refused.append(full)
            if number == 4:
                read.set()

        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(open_one, number)
        assert watchers.streams == 0
        return refused

    assert len(anyio.run(open_all, Watchers(door.wakes, most_of_key=2))) == 3
    read.clear()
    assert len(anyio.run(open_all, Watchers(door.wakes, most=2))) == 3


def test_a_database_that_goes_away_ends_the_stream_and_loses_nothing(door: Door) -> None:
    def read(after: int) -> watching.Page:
        if after == 1:
            return page_of(2)
        raise Unavailable("database_away", "the database cannot be used now")

    async def hear() -> list[bytes]:
        return [frame async for frame in watchers.frames("run_1", read, page_of(1), "key")]

    watchers = Watchers(door.wakes)
    assert numbers(b"".join(anyio.run(hear))) == [1, 2]
    assert watchers.streams == 0


def test_a_client_that_goes_away_leaves_nothing(door: Door) -> None:
    door.wakes.still = True
    watchers = Watchers(door.wakes)
    nothing: watching.Page = {"events": [], "next": 1, "final": False}

    async def leave() -> None:
        stream = EventStream(watchers.frames("run_1", lambda _: nothing, nothing, "key"))
        async with anyio.create_task_group() as group:
            heard = anyio.Event()

            async def send(message: Any) -> None:
                if message.get("body"):
                    heard.set()

            group.start_soon(stream.stream_response, send)
            await heard.wait()
            assert watchers.streams == 1
            group.cancel_scope.cancel()
        assert watchers.streams == 0

    anyio.run(leave)


def test_streams_wait_without_threads(door: Door) -> None:
    """More streams than threads, all of them open at once."""
    door.wakes.still = True
    watchers = Watchers(door.wakes)
    nothing: watching.Page = {"events": [], "next": 1, "final": False}

    async def open_all() -> None:
        streams = [
            watchers.frames(f"run_{n}", lambda _: nothing, nothing, "key") for n in range(50)
        ]
        for stream in streams:
            assert await anext(stream) == watching.RETRY
        assert watchers.streams == 50
        assert to_thread.current_default_thread_limiter().borrowed_tokens == 0
        assert watchers.threads.borrowed_tokens == 0
        for stream in streams:
            await stream.aclose()
        assert watchers.streams == 0

    anyio.run(open_all)


def page_of(number: int) -> watching.Page:
    return {"events": [{"number": number, "kind": "ready"}], "next": number, "final": False}


def ended_run(door: Door) -> str:
    run_id = str(door.post("/v1/runs", STEP, 201)["run_id"])
    door.stage.run_until_final(run_id)
    return run_id


def frames_of(body: bytes) -> list[dict[str, str]]:
    """The events of a stream, by the letter: a frame is lines `field: value`, and ends with an empty one."""
    frames = [frame.split("\n") for frame in body.decode().split("\n\n")]
    fields = [dict(line.split(": ", 1) for line in frame if line) for frame in frames]
    return [each for each in fields if "id" in each]


def numbers(body: bytes) -> list[int]:
    return [int(frame["id"]) for frame in frames_of(body)]
