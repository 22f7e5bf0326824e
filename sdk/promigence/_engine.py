"""The sync driver: sends what the steps of a call ask for, over kept-alive connections."""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import httpx2

from promigence._protocol import Answer, Broken, Reply, Request
from promigence._retry import Deadline
from promigence._steps.calls import Send, Steps, Terms

T = TypeVar("T")

CONNECT_SECONDS = 5.0
CHUNK_BYTES = 256 * 1024
# A report of thousands of forks fits; an endless answer does not.
ANSWER_LIMIT_BYTES = 256 * 1024 * 1024
# Longer than the pause between two tool calls of an agent; the server may close earlier.
KEEP_ALIVE_SECONDS = 60.0
LIMITS = httpx2.Limits(
    max_connections=4096, max_keepalive_connections=256, keepalive_expiry=KEEP_ALIVE_SECONDS
)
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Pace:
    """The clock, the pause and the dice of a client; tests give their own and wait for nothing."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random


class _OutOfTime(Exception):
    """The time for one attempt passed between two chunks."""


class _TooMuch(Exception):
    """An answer larger than any of this contract."""


class Engine:
    """One server's connections. Safe to share between threads; `close` ends them."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        patience_seconds: float,
        agent: str,
        transport: httpx2.BaseTransport | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.base_url = base_url
        self.patience_seconds = patience_seconds
        self.pace = pace or Pace()
        self._answered = threading.Event()
        self._http = httpx2.Client(
            base_url=base_url,
            headers={"Authorization": f"Bearer {api_key}", "User-Agent": agent},
            limits=LIMITS,
            transport=transport,
            # A proxy of the environment is for the world outside, not for a server on this machine.
            trust_env=httpx2.URL(base_url).host not in LOOPBACK,
        )

    def terms(self, seconds: float | None = None) -> Terms:
        """What holds for a call of that many seconds in all; None: as long as one request may take."""
        total = self.patience_seconds if seconds is None else seconds
        return Terms(
            deadline=Deadline.after(total, self.pace.clock),
            patience_seconds=self.patience_seconds,
            chance=self.pace.chance,
            known=self._answered.is_set(),
        )

    def run(self, steps: Steps[T]) -> T:
        """Drive a call to its result. Raises what the steps raise."""
        try:
            send = next(steps)
            while True:
                if send.after_seconds > 0:
                    self.pace.sleep(send.after_seconds)
                send = steps.send(self._exchange(send))
        except StopIteration as stop:
            return cast("T", stop.value)

    def close(self) -> None:
        self._http.close()

    def _exchange(self, send: Send) -> Reply:
        """One attempt. A fault of the network comes back as Broken; a local file's OSError is raised."""
        deadline = Deadline.after(send.within_seconds, self.pace.clock)
        try:
            with _body_of(send.request, deadline) as (content, length):
                reply = self._attempt(send, content, length, deadline)
        except httpx2.ConnectError as error:
            return Broken(self._unreachable(error), reached=False)
        except httpx2.ConnectTimeout:
            return Broken(self._unreachable("no answer to a connection"), reached=False)
        except (httpx2.TimeoutException, _OutOfTime):
            return Broken("the server did not answer in time", reached=True)
        except httpx2.LocalProtocolError as error:
            return Broken(f"the request could not be sent: {error}", reached=True, retryable=False)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            return Broken(f"the connection broke: {_said(error)}", reached=True)
        except _TooMuch:
            return Broken("the answer is too large", reached=True, retryable=False)
        self._answered.set()
        return reply

    def _attempt(
        self,
        send: Send,
        content: bytes | Iterator[bytes] | None,
        length: dict[str, str],
        deadline: Deadline,
    ) -> Answer:
        request = send.request
        built = self._http.build_request(
            request.method,
            request.path,
            params=list(request.query),
            headers={**request.headers, **length},
            content=content,
            timeout=httpx2.Timeout(send.io_seconds, connect=min(CONNECT_SECONDS, send.io_seconds)),
        )
        response = self._http.send(built, stream=True)
        if request.stream_after is not None and response.status_code == httpx2.codes.OK:
            return Answer(response.status_code, _headers(response), stream=_Stream(response))
        try:
            return _read(response, request, deadline)
        finally:
            response.close()

    def _unreachable(self, why: object) -> str:
        return (
            f"cannot reach {self.base_url}: {_said(why)}. Is the server up? "
            "On one machine `make up` starts it and writes its address to .promigence/env"
        )


@contextmanager
def _body_of(
    request: Request, deadline: Deadline
) -> Iterator[tuple[bytes | Iterator[bytes] | None, dict[str, str]]]:
    if request.upload is None:
        yield request.body, {}
        return
    with request.upload.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        yield _chunks(file, deadline), {"Content-Length": str(size)}


def _chunks(file: BinaryIO, deadline: Deadline) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        if deadline.left() <= 0:
            raise _OutOfTime
        yield chunk


def _read(response: httpx2.Response, request: Request, deadline: Deadline) -> Answer:
    headers = _headers(response)
    if request.download is not None and response.is_success:
        length = _save(response, request.download, deadline)
        return Answer(response.status_code, headers, length=length)
    body = bytearray()
    for chunk in _timely(response, deadline):
        body += chunk
        if len(body) > ANSWER_LIMIT_BYTES:
            raise _TooMuch
    return Answer(response.status_code, headers, bytes(body), len(body))


def _headers(response: httpx2.Response) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


@dataclass(frozen=True, slots=True)
class _Stream:
    """A body that comes piece by piece; silence longer than a wait for the network is a break, too."""

    response: httpx2.Response

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self.response.iter_bytes()
        except (httpx2.TransportError, httpx2.DecodingError):
            return  # whoever reads asks again for what did not come

    def close(self) -> None:
        self.response.close()


def _save(response: httpx2.Response, path: Path, deadline: Deadline) -> int:
    """Into a file beside it first: a download that breaks leaves what was there before."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    length = 0
    try:
        with part.open("xb") as file:
            for chunk in _timely(response, deadline):
                length += file.write(chunk)
        part.replace(path)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
    return length


def _timely(response: httpx2.Response, deadline: Deadline) -> Iterator[bytes]:
    for chunk in response.iter_bytes():
        if deadline.left() <= 0:
            raise _OutOfTime
        yield chunk


def _said(error: object) -> str:
    return str(error) or type(error).__name__
