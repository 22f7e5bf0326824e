"""The instance metadata service (IMDSv2): every read carries a token that a PUT has fetched before.

Amazon documents it in the EC2 user guide: `spot/instance-action` and `events/recommendations/rebalance` are 404 until
there is something to say; a token that has run out, or that another instance was given, is a 401.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple

import httpx2

from app.domain.money import NS_PER_SECOND
from app.domain.spot import InstanceIdentity, Notice, notice
from app.errors import Unavailable

TIMEOUT_S = 2.0
TOKEN_TTL_S = 6 * 3600
# A token is fetched anew before it runs out.
TOKEN_AGE_S = TOKEN_TTL_S - 300
MAX_BYTES = 16 * 1024
# All of an answer, however slowly it drips.
WHOLE_S = 5.0

_TOKEN = "X-aws-ec2-metadata-token"  # noqa: S105 - a header's name, no secret
_TOKEN_PATH = "/latest/api/token"  # noqa: S105
_IDENTITY = "/latest/dynamic/instance-identity/document"
_NOTICE = "/latest/meta-data/spot/instance-action"
_REBALANCE = "/latest/meta-data/events/recommendations/rebalance"


class Answer(NamedTuple):
    """What the service said, and its own clock as it said so, where it told that (ns since the epoch)."""

    status: int
    body: bytes
    said_wall_ns: int | None


class InstanceMetadata:
    """`app.ports.fleet.Metadata`, at http://169.254.169.254 on EC2.

    No proxy of the environment stands between, and no redirect is followed: who answers is the hypervisor or nobody.
    """

    def __init__(self, url: str, transport: httpx2.BaseTransport | None = None) -> None:
        self._http = httpx2.Client(
            base_url=url,
            timeout=TIMEOUT_S,
            trust_env=False,
            follow_redirects=False,
            transport=transport,
        )
        self._token = ""
        self._token_ends_s = 0.0

    def close(self) -> None:
        self._http.close()

    def identity(self) -> InstanceIdentity:
        told = _object(_IDENTITY, self._found(_IDENTITY))
        return InstanceIdentity(
            _word(_IDENTITY, told, "instanceId"),
            _word(_IDENTITY, told, "availabilityZone"),
            _word(_IDENTITY, told, "region"),
        )

    def notice(self) -> Notice | None:
        answer = self._read(_NOTICE)
        if answer is None:
            return None
        told = _object(_NOTICE, answer)
        return notice(_word(_NOTICE, told, "action"), _left_ns(told.get("time"), answer))

    def rebalance(self) -> str | None:
        answer = self._read(_REBALANCE)
        if answer is None:
            return None
        return _word(_REBALANCE, _object(_REBALANCE, answer), "noticeTime")

    def _found(self, path: str) -> Answer:
        answer = self._read(path)
        if answer is None:
            raise _away(f"it knows no {path}")
        return answer

    def _read(self, path: str) -> Answer | None:
        """None is a 404. A token that is refused is fetched once more."""
        answer = self._ask("GET", path, {_TOKEN: self._fresh_token()})
        if answer.status == HTTPStatus.UNAUTHORIZED:
            self._token = ""
            answer = self._ask("GET", path, {_TOKEN: self._fresh_token()})
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        return _ok(path, answer)

    def _fresh_token(self) -> str:
        if not self._token or time.monotonic() >= self._token_ends_s:
            asked_s = time.monotonic()
            ttl = {f"{_TOKEN}-ttl-seconds": str(TOKEN_TTL_S)}
            given = _ok(_TOKEN_PATH, self._ask("PUT", _TOKEN_PATH, ttl)).body
            if not given or not given.isascii() or not given.decode().isprintable():
                raise _away("it gave a token that is none")
            self._token, self._token_ends_s = given.decode(), asked_s + TOKEN_AGE_S
        return self._token

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        try:
            with self._http.stream(method, path, headers=headers) as answer:
                body = _bounded(path, answer.iter_bytes(MAX_BYTES))
                return Answer(answer.status_code, body, _date(answer.headers.get("Date")))
        except httpx2.HTTPError as error:
            raise _away(f"{method} {path}: {error!r}") from error


def _bounded(path: str, parts: Iterable[bytes]) -> bytes:
    body, until_s = b"", time.monotonic() + WHOLE_S
    for part in parts:
        body += part
        if time.monotonic() > until_s:
            raise _away(f"{path} took longer than {WHOLE_S:.0f} s")
        if len(body) > MAX_BYTES:
            raise _away(f"{path} is longer than {MAX_BYTES} bytes")
    return body


def _ok(path: str, answer: Answer) -> Answer:
    if answer.status != HTTPStatus.OK:
        raise _away(f"{path} is answered with {answer.status}")
    return answer


def _object(path: str, answer: Answer) -> dict[str, object]:
    try:
        told = json.loads(answer.body)
    except ValueError as error:
        raise _away(f"{path} is no JSON") from error
    if not isinstance(told, dict):
        raise _away(f"{path} is no object")
    return told


def _word(path: str, told: dict[str, object], name: str) -> str:
    word = told.get(name)
    if not isinstance(word, str) or not word:
        raise _away(f"{path} says no {name}")
    return word[:64]


def _left_ns(told: object, answer: Answer) -> int | None:
    """How long it is until the time told, by the service's own clock: this host's may be wrong.

    None where the time cannot be read: that something is announced is clear all the same.
    """
    try:
        at = datetime.fromisoformat(str(told))
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    now_ns = time.time_ns() if answer.said_wall_ns is None else answer.said_wall_ns
    return int(at.timestamp()) * NS_PER_SECOND - now_ns


def _date(told: str | None) -> int | None:
    if told is None:
        return None
    try:
        return int(parsedate_to_datetime(told).timestamp()) * NS_PER_SECOND
    except ValueError:
        return None


def _away(what: str) -> Unavailable:
    return Unavailable("metadata_away", f"the instance metadata service: {what}")
