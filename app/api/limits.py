"""How often a key may call, how much it may have open at once, and how often an address may guess.

Counted in this process alone, so several processes of the API allow as much each: what is guarded is a process's own
threads and its share of the database, and an answer that says no must cost less than one that says yes.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from anyio import fail_after
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import answer
from app.api.lately import Lately
from app.errors import RateLimited

log = logging.getLogger(__name__)

# Whoever does not take a part of its answer for so long has gone; what the answer is read from is given back.
SLOWEST_READ_S = 60.0
TOLD_S = 1.0
# How many callers are remembered, at about 100 bytes each.
_REMEMBERED = 100_000
# An address of IPv6 is a network of its own: whoever has one has 2**64.
_IPV6_BITS = 64


@dataclass(frozen=True, slots=True)
class Pace:
    """How often: `per_second` in the long run, and `burst` at once after a pause."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class Allowances:
    """What one process of the API grants.

    A step of 5,000 held forks, the largest, may call from all of them at once, and has a call open for each.
    `wrong_keys` is of an address, all else of a key.
    """

    requests: Pace = Pace(500.0, 5000)
    wrong_keys: Pace = Pace(5.0, 300)
    in_flight: int = 10_000
    streams: int = 200


class Buckets:
    """How often each of many has come (the generic cell rate algorithm: one moment for each, no timer, no sweep).

    Moments are seconds of one monotonic clock.
    """

    def __init__(self, pace: Pace, remembered: int = _REMEMBERED) -> None:
        self._interval_s = 1.0 / pace.per_second
        # A millionth of a request: sums of fractions of a second are not exact.
        self._tolerance_s = (pace.burst - 1 + 1e-6) * self._interval_s
        self._remembered = remembered
        self._due: dict[str, float] = {}

    def wait_s(self, who: str, now_s: float) -> float:
        """How long until this one may come; 0 if it may now. It is not counted."""
        return max(0.0, self._due.get(who, now_s) - self._tolerance_s - now_s)

    def count(self, who: str, now_s: float) -> None:
        """It came."""
        if len(self._due) >= self._remembered and who not in self._due:
            self._forget(now_s)
        self._due[who] = max(self._due.get(who, now_s), now_s) + self._interval_s

    def _forget(self, now_s: float) -> None:
        """Those who have all of their burst again; everybody, if nobody has: memory has a bound before justice."""
        self._due = {who: due for who, due in self._due.items() if due > now_s}
        if len(self._due) >= self._remembered:
            self._due.clear()


class WrongKeys:
    """Slows down whoever tries keys, without shutting out a right key that comes from the same address."""

    def __init__(self, pace: Pace, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures = Buckets(pace)
        self._clock = clock
        # Digests of keys that opened here, newest last.
        self._opened: dict[bytes, None] = {}

    def need_patience(self, address: str, secret: str) -> None:
        """Raises RateLimited before anything is looked up."""
        wait_s = self._failures.wait_s(_network(address), self._clock())
        if wait_s > 0 and _digest(secret) not in self._opened:
            raise _limited("too many wrong keys came from your address", wait_s)

    def opened(self, secret: str) -> None:
        """A right key came."""
        digest = _digest(secret)
        if digest in self._opened:
            return
        if len(self._opened) >= _REMEMBERED:
            del self._opened[next(iter(self._opened))]
        self._opened[digest] = None

    def failed(self, address: str, secret: str) -> None:
        """A wrong key came, or none; one that opened before is revoked or over, and has no credit any more."""
        self._opened.pop(_digest(secret), None)
        self._failures.count(_network(address), self._clock())


class Throttle:
    """Let each key have its share: so many requests a second, and so many at once. After `Authenticate`."""

    def __init__(
        self,
        app: ASGIApp,
        allowances: Allowances,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._allowances = allowances
        self._requests = Buckets(allowances.requests)
        self._in_flight: Counter[str] = Counter()
        self._told = Lately(TOLD_S)
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = scope.get("state", {}).get("caller")
        if caller is None:
            await self._app(scope, receive, send)
            return
        try:
            with self._entered(caller.key_id):
                await _served(self._app, scope, receive, send)
        except RateLimited as limited:
            self._tell(caller.key_id, limited)
            await answer(limited, scope["state"]["request_id"])(scope, receive, send)

    @contextmanager
    def _entered(self, key_id: str) -> Iterator[None]:
        """Raises RateLimited, of what did not begin."""
        now_s = self._clock()
        wait_s = self._requests.wait_s(key_id, now_s)
        if wait_s > 0:
            pace = self._allowances.requests
            raise _limited(
                f"a key has {pace.per_second:g} requests a second in the long run", wait_s
            )
        if self._in_flight[key_id] >= self._allowances.in_flight:
            most = self._allowances.in_flight
            raise _limited(f"a key has {most} requests open at once; close some", 1.0)
        self._requests.count(key_id, now_s)
        self._in_flight[key_id] += 1
        try:
            yield
        finally:
            self._in_flight[key_id] -= 1
            if not self._in_flight[key_id]:
                del self._in_flight[key_id]

    def _tell(self, key_id: str, limited: RateLimited) -> None:
        """A line a second for a key: whoever floods us must not flood our log."""
        if self._told.is_new(key_id, self._clock()):
            log.warning("key %s is rate limited: %s", key_id, limited.message)


async def _served(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """The application's answer, given up where its reader stalls: the server then breaks the connection, for half an
    answer must not look whole.
    """
    is_streamed = stalled = False

    async def send_in_time(message: Message) -> None:
        nonlocal is_streamed, stalled
        is_streamed = is_streamed or message.get("more_body", False)
        if not is_streamed:
            await send(message)
            return
        try:
            with fail_after(SLOWEST_READ_S):
                await send(message)
        except TimeoutError:
            stalled = True
            raise

    try:
        await app(scope, receive, send_in_time)
    except Exception:
        if not stalled:
            raise
        log.info("request %s: its caller reads no more", scope["state"]["request_id"])


def _limited(why: str, wait_s: float) -> RateLimited:
    seconds = math.ceil(wait_s)
    return RateLimited(
        "rate_limited", f"{why}; try again in {seconds} s", retry_after_seconds=seconds
    )


def _digest(secret: str) -> bytes:
    return hashlib.blake2b(secret.encode(errors="surrogateescape"), digest_size=16).digest()


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network((int(parsed), _IPV6_BITS), strict=False))
