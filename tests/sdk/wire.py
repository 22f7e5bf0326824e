"""A server of the wire for tests, which keeps all that it was asked, and a clock that nobody waits for."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx2

from promigence import Promigence
from promigence._engine import Pace

BASE_URL = "http://promigence.test"


@dataclass
class Wire:
    """Replies are given in order; an exception among them is a fault of the network. Too few is an AssertionError."""

    replies: deque[httpx2.Response | Exception] = field(default_factory=deque)
    asked: list[httpx2.Request] = field(default_factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        assert self.replies, f"nobody expected {request.method} {request.url}"
        reply = self.replies.popleft()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def will(self, *replies: httpx2.Response | Exception) -> None:
        self.replies.extend(replies)

    @property
    def lines(self) -> list[str]:
        """What was asked, as `METHOD path?query`."""
        return [f"{request.method} {request.url.raw_path.decode()}" for request in self.asked]

    def body(self, number: int = -1) -> Any:
        return json.loads(self.asked[number].content)

    def keys(self) -> list[str | None]:
        return [request.headers.get("idempotency-key") for request in self.asked]


@dataclass
class FakeTime:
    """A clock that moves only when somebody pauses."""

    now: float = 1000.0
    pauses: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def pace(self) -> Pace:
        return Pace(clock=lambda: self.now, sleep=self.sleep, chance=lambda: 0.5)


def client_of(wire: Wire, time: FakeTime, timeout: float = 60.0) -> Promigence:
    return Promigence(
        "test-key",
        BASE_URL,
        timeout=timeout,
        transport=httpx2.MockTransport(wire),
        pace=time.pace(),
    )


def ok(body: Any, status: int = 200, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, json=body, headers={"X-Request-Id": "req-1", **headers})


def refused(
    status: int,
    code: str,
    *,
    retryable: bool = False,
    details: dict[str, Any] | None = None,
    headers: Iterable[tuple[str, str]] = (),
) -> httpx2.Response:
    error = {
        "code": code,
        "message": f"about {code}",
        "retryable": retryable,
        "request_id": "req-9",
        "details": details or {},
    }
    return httpx2.Response(status, json={"error": error}, headers=list(headers))


def unreachable() -> httpx2.ConnectError:
    return httpx2.ConnectError("[Errno 111] Connection refused")


def cut_off() -> httpx2.ReadError:
    return httpx2.ReadError("connection reset by peer")
