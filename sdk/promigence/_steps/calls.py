"""One request until it is answered; lists; long polls. The steps of all calls are made of these.

A call is a generator that yields what to send and is sent what came back:

    Send(request, ...)  ->  Answer | Broken

A driver does the I/O: it sleeps `after_seconds`, sends, gives the reply back; what the generator returns is the call's
result. The sync driver is `_engine.py`; an async one is its own loop and not a line more.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeVar

from promigence._protocol import (
    MAX_WAIT_SECONDS,
    Answer,
    Broken,
    Reply,
    Request,
    expect,
    expect_list,
    fault_of,
    query_of,
)
from promigence._retry import Deadline, Retries, asked_pause, worth_another_try
from promigence.errors import DeadlineExceeded, PromigenceError

T = TypeVar("T")

# What one attempt may take beyond the time that the server waits on purpose.
ATTEMPT_SECONDS = 30.0
# A server that answers a long poll at once is not asked again at once.
LEAST_POLL_SECONDS = 0.2
# Left of a deadline for the answer itself when the server is asked to wait until nearly then.
ANSWER_SECONDS = 0.5
PAGE = 500


@dataclass(frozen=True, slots=True)
class Send:
    """What the driver does next: pause, then send and be done within `within_seconds`.

    `io_seconds` bounds each wait for the network inside of that.
    """

    request: Request
    within_seconds: float
    io_seconds: float
    after_seconds: float = 0.0


Steps = Generator[Send, Reply, T]


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for one call: its deadline, how it retries, and whether this server ever answered.

    `patience_seconds` is how long faults in a row are put up with, counted from the first, and how long one answer may
    take: a wait of hours does not go on for hours against a server that is away.
    """

    deadline: Deadline
    patience_seconds: float
    chance: Callable[[], float]
    known: bool
    retries: Retries = field(default_factory=Retries)


def call(request: Request, terms: Terms, after: float = 0.0) -> Steps[Answer]:
    """One request until it is answered, as often as may be and while there is time. Raises PromigenceError."""
    window: Deadline | None = None
    met: PromigenceError | None = None
    for attempt in count(1):
        if terms.deadline.left() <= after:
            raise _too_late(met) from met
        reply = yield _attempt(request, terms, after)
        met = fault_of(request, reply)
        if isinstance(reply, Answer) and met is None:
            return reply
        assert met is not None
        if not worth_another_try(reply, met):
            raise met
        window = window or terms.deadline.within(_patience(reply, terms))
        asked = asked_pause(reply)
        after = terms.retries.pause_seconds(attempt, asked, terms.chance())
        if asked is not None and asked >= window.left():
            raise met
        if after >= window.left() and window.at < terms.deadline.at:
            raise met
    raise AssertionError("count() has no end")


def call_for(request: Request, shape: type[T], terms: Terms) -> Steps[T]:
    """As `call`; the answer in its shape. Raises BadAnswer too."""
    answer = yield from call(request, terms)
    return expect(answer, shape)


def pages(
    request: Request, name: str, shape: type[T], limit: int | None, terms: Terms
) -> Steps[list[T]]:
    """The first `limit` things of a list (None: all of them), page by page."""
    things: list[T] = []
    cursor: str | None = None
    while limit is None or len(things) < limit:
        size = PAGE if limit is None else min(PAGE, limit - len(things))
        page = replace(request, query=request.query + query_of(limit=size, cursor=cursor))
        answer = yield from call(page, terms)
        found, cursor = expect_list(answer, name, shape)
        things += found
        if cursor is None:
            break
    return things if limit is None else things[:limit]


def poll(request: Request, every_seconds: float, terms: Terms, after: float = 0.0) -> Steps[Answer]:
    """One long poll, begun `after` seconds from now: what there is, at the latest after `every_seconds`."""
    left = terms.deadline.left() - after - ANSWER_SECONDS
    wait = max(0.0, min(every_seconds, MAX_WAIT_SECONDS, left))
    query = request.query + query_of(wait_seconds=round(wait, 3))
    answer = yield from call(replace(request, query=query, wait_seconds=wait), terms, after)
    return answer


def pause_before_next(begun: float, every_seconds: float, clock: Callable[[], float]) -> float:
    """How long to leave a server alone that answered a long poll, begun then, without a result."""
    return max(0.0, min(every_seconds, LEAST_POLL_SECONDS) - (clock() - begun))


def _attempt(request: Request, terms: Terms, after: float) -> Send:
    """A transfer may take all the time there is; its `io_seconds` tell a slow one from a dead one."""
    left = terms.deadline.left() - after
    transfer = request.upload is not None or request.download is not None
    within = left if transfer else min(left, terms.patience_seconds + request.wait_seconds)
    return Send(request, within, min(within, ATTEMPT_SECONDS + request.wait_seconds), after)


def _patience(reply: Reply, terms: Terms) -> float:
    if isinstance(reply, Broken) and not reply.reached and not terms.known:
        return terms.retries.first_contact_seconds
    return terms.patience_seconds


def _too_late(met: PromigenceError | None) -> DeadlineExceeded:
    because = f"; the last fault met was: {met.message}" if met else ""
    return DeadlineExceeded(f"the call's deadline passed{because}")
