"""The steps of every call need no other line for an async client than a driver: here is one, in full."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import httpx2

from promigence._protocol import Answer, Broken, Reply
from promigence._retry import Deadline
from promigence._steps import forks, runs
from promigence._steps.calls import Send, Steps, Terms
from tests.sdk import shapes
from tests.sdk.wire import FakeTime, Wire, ok, refused

T = TypeVar("T")


async def drive(
    steps: Steps[T], http: httpx2.AsyncClient, sleep: Callable[[float], Awaitable[None]]
) -> T:
    try:
        send = next(steps)
        while True:
            await sleep(send.after_seconds)
            send = steps.send(await exchange(http, send))
    except StopIteration as stop:
        return cast("T", stop.value)


async def exchange(http: httpx2.AsyncClient, send: Send) -> Reply:
    request = send.request
    try:
        response = await http.request(
            request.method,
            request.path,
            params=list(request.query),
            headers=request.headers,
            content=request.body,
            timeout=send.io_seconds,
        )
    except httpx2.TransportError as error:
        return Broken(str(error), reached=True)
    return Answer(response.status_code, dict(response.headers), response.content)


def test_the_same_steps_run_asynchronously(wire: Wire, time: FakeTime) -> None:
    async def sleep(seconds: float) -> None:
        time.sleep(seconds)

    async def everything() -> None:
        transport = httpx2.MockTransport(wire)
        async with httpx2.AsyncClient(base_url="http://p.test", transport=transport) as http:
            terms = Terms(Deadline.after(60, lambda: time.now), 60, lambda: 0.5, known=True)
            started = await drive(
                runs.start("task-suite", {"count": 1, "spend_cap": 1.0}, "k-1", terms), http, sleep
            )
            assert started["run_id"] == "r-1"
            report = await drive(runs.wait("r-1", True, None, terms), http, sleep)
            assert report["final"]
            result = await drive(forks.run("f-1", {"sh": "true"}, "x-1", "k-2", terms), http, sleep)
            assert result["exit_code"] == 0

    wire.will(
        httpx2.ReadError("reset"),
        refused(503, "unavailable", retryable=True),
        ok(shapes.started(), 201),
        ok(shapes.run(pending=1)),
        ok(shapes.run(passed=1)),
        ok(shapes.report(shapes.fork_report(0, "passed", 1.0))),
        ok({"exec_id": "x-1", "state": "running"}, 202),
        ok(shapes.exec_result()),
    )
    asyncio.run(everything())
    assert wire.keys()[:3] == ["k-1"] * 3
    assert sum(time.pauses) > 0
