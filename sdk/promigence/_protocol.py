"""The protocol apart from I/O: requests as data, answers as data, and what an answer means.

Nothing here opens a socket or reads a clock, so that a client of another kind (async) shares all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import quote as escaped

from promigence.errors import (
    BadAnswer,
    BadDefinition,
    BadRequest,
    Conflict,
    EnvironmentFailure,
    Forbidden,
    NotFound,
    PromigenceError,
    RateLimited,
    ServerError,
    ServerUnreachable,
    TooLarge,
    Unauthorized,
    Unavailable,
)

MAX_WAIT_SECONDS = 25.0
# How long the server may be silent while it moves a file between itself and a guest.
MOVE_SECONDS = 300.0
# Deeper than any body that the API knows.
MAX_NAMED_DEPTH = 8
RETRIED_STATUSES = frozenset({429, 502, 503, 504})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One request, ready to be sent any number of times.

    `json` or `upload` (a file's bytes) is the body. `download` is where the bytes of a good answer go.
    `wait_seconds` is how long the server may take on purpose. `also` are statuses that are an answer, not an error.
    With `stream_after` a good answer is a stream of the events after that number.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    json: Any = None
    upload: Path | None = None
    download: Path | None = None
    idempotency_key: str | None = None
    wait_seconds: float = 0.0
    also: frozenset[int] = frozenset()
    stream_after: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Accept": "application/octet-stream" if self.download else "application/json"}
        if self.stream_after is not None:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self.stream_after)}
        if self.json is not None:
            headers["Content-Type"] = "application/json"
        if self.upload is not None:
            headers["Content-Type"] = "application/octet-stream"
        if self.idempotency_key is not None:
            headers["Idempotency-Key"] = self.idempotency_key
        return headers

    @property
    def body(self) -> bytes | None:
        """The JSON body in bytes. Raises BadRequest for what JSON cannot say (NaN included)."""
        if self.json is None:
            return None
        try:
            return _as_json(self.json)
        except (TypeError, ValueError) as error:
            place, value = _unsendable(self.json)
            why = "it is no finite number" if isinstance(value, float) else error
            raise BadRequest(f"{place} cannot be sent: {why}") from error


class Stream(Protocol):
    """What is still to come of an answer; ends where the server ends it, or where the connection breaks."""

    def __iter__(self) -> Iterator[bytes]: ...

    def close(self) -> None:
        """Give the connection up. Twice is safe."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. `headers` have lower-case names; `length` counts the bytes that went to a file.

    Of an answer that is a `stream`, only its head is here: whoever reads the rest closes it.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False, default=b"")
    length: int = 0
    stream: Stream | None = None

    @property
    def request_id(self) -> str | None:
        return self.headers.get("x-request-id")


@dataclass(frozen=True, slots=True)
class Broken:
    """No whole answer came. `reached` is false when there was no connection at all."""

    message: str
    reached: bool
    retryable: bool = True


Reply = Answer | Broken


def path_of(*parts: str) -> str:
    """`/v1/...` with each part escaped, so that no name can walk out of its place. Raises BadRequest for no name."""
    for part in parts:
        if part in {"", ".", ".."}:
            raise BadRequest(f"{part!r} is no name or id")
    return "/".join(("/v1", *(escaped(part, safe="@") for part in parts)))


def query_of(**pairs: Any) -> tuple[tuple[str, str], ...]:
    """Query pairs without those that are None; booleans as `true` and `false`."""
    return tuple((name, _plain(value)) for name, value in pairs.items() if value is not None)


def expect(answer: Answer, shape: type[T]) -> T:
    """The answer's JSON object as this TypedDict. Raises BadAnswer when a key of the contract is missing."""
    body = _object(answer)
    missing = sorted(getattr(shape, "__required_keys__", frozenset()) - body.keys())
    if missing:
        raise _bad_answer(answer, f"{shape.__name__} without {', '.join(missing)}")
    return cast("T", body)


def expect_list(answer: Answer, name: str, shape: type[T]) -> tuple[list[T], str | None]:
    """One page of a list and the cursor of the next, None after the last. Raises BadAnswer."""
    body = _object(answer)
    items = body.get(name)
    required: frozenset[str] = getattr(shape, "__required_keys__", frozenset())
    if not isinstance(items, list) or not all(
        isinstance(item, dict) and required <= item.keys() for item in items
    ):
        raise _bad_answer(answer, f"no list of {shape.__name__} under {name!r}")
    return cast("list[T]", items), body.get("next_cursor") or None


def fault_of(request: Request, reply: Reply) -> PromigenceError | None:
    """What is wrong with a reply; None when it is the answer that was asked for."""
    if isinstance(reply, Broken):
        return ServerUnreachable(reply.message, retryable=reply.retryable)
    if 200 <= reply.status < 300 or reply.status in request.also:
        return None
    if reply.status < 400:
        return _bad_answer(reply, f"status {reply.status}; is the base URL right?")
    return error_of(reply)


def error_of(answer: Answer) -> PromigenceError:
    """An answer of 400 or more as the error that it tells of."""
    told = _error_body(answer)
    status = answer.status
    code = str(told.get("code") or f"http_{status}")
    details = told.get("details")
    rest: dict[str, Any] = {
        "code": code,
        "status": status,
        "retryable": bool(told.get("retryable", status in RETRIED_STATUSES)),
        "request_id": told.get("request_id") or answer.request_id,
        "details": details if isinstance(details, dict) else {},
    }
    message = str(told.get("message") or f"the server answered {status} and said no more")
    if code == EnvironmentFailure.default_code and {"failure", "fork_id"} <= rest["details"].keys():
        lost = rest["details"]
        return EnvironmentFailure(message, failure=lost["failure"], fork_id=lost["fork_id"], **rest)
    return _class_of(status, code)(message, **rest)


def retry_after_seconds(answer: Answer) -> float | None:
    """`Retry-After` in seconds. A date is read against the answer's own `Date`: two clocks are never compared."""
    told = answer.headers.get("retry-after", "").strip()
    if told.isdecimal():
        return float(told)
    try:
        until = parsedate_to_datetime(told)
        sent = parsedate_to_datetime(answer.headers.get("date", ""))
        return max(0.0, (until - sent).total_seconds())
    except (ValueError, TypeError):
        return None


def _as_json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _unsendable(body: Any, path: str = "") -> tuple[str, Any]:
    """What JSON has no word for, and its place, such as `definition.spend_cap`; a circle is named to some depth."""
    inner = body.items() if isinstance(body, dict) else ()
    for name, value in inner if path.count(".") < MAX_NAMED_DEPTH else ():
        try:
            _as_json(value)
        except (TypeError, ValueError):
            return _unsendable(value, f"{path}.{name}" if path else str(name))
    return path or "an argument", body


def _class_of(status: int, code: str) -> type[PromigenceError]:
    if code == BadDefinition.default_code:
        return BadDefinition
    by_status: dict[int, type[PromigenceError]] = {
        401: Unauthorized,
        403: Forbidden,
        404: NotFound,
        409: Conflict,
        413: TooLarge,
        429: RateLimited,
        503: Unavailable,
    }
    return by_status.get(status, ServerError if status >= 500 else BadRequest)


def _error_body(answer: Answer) -> dict[str, Any]:
    try:
        told = json.loads(answer.body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _object(answer: Answer) -> dict[str, Any]:
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise _bad_answer(answer, "no JSON") from error
    if not isinstance(body, dict):
        raise _bad_answer(answer, f"a JSON {type(body).__name__} instead of an object")
    return body


def _bad_answer(answer: Answer, what: str) -> BadAnswer:
    return BadAnswer(
        f"the answer is not Promigence's: {what}",
        status=answer.status,
        request_id=answer.request_id,
    )


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
