"""The instance metadata service: tokens, what it says, and whatever it should not answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import httpx2
import pytest

from app.domain.money import NS_PER_SECOND
from app.domain.spot import LONGEST_NOTICE_NS, USUAL_NOTICE_NS, InstanceIdentity
from app.errors import Unavailable
from infra.aws.metadata import MAX_BYTES, TOKEN_AGE_S, InstanceMetadata

URL = "http://169.254.169.254"
TOKEN = "X-aws-ec2-metadata-token"
NOTICE = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
IDENTITY = "/latest/dynamic/instance-identity/document"
SAID = "Tue, 01 Dec 2026 10:00:00 GMT"

Answers = dict[str, httpx2.Response | Exception]


class Service:
    """A metadata service of one instance: gives numbered tokens, refuses all but the last."""

    def __init__(self) -> None:
        self.answers: Answers = {}
        self.tokens = 0
        self.asked: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(f"{request.method} {request.url.path}")
        if request.url.path == "/latest/api/token":
            assert request.method == "PUT"
            assert 0 < int(request.headers[f"{TOKEN}-ttl-seconds"]) <= 21600
            self.tokens += 1
            return httpx2.Response(200, text=f"token-{self.tokens}")
        if request.headers.get(TOKEN) != f"token-{self.tokens}":
            return httpx2.Response(401)
        answer = self.answers.get(request.url.path, httpx2.Response(404))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def say(self, path: str, told: object, status: int = 200) -> None:
        body = told if isinstance(told, bytes) else json.dumps(told).encode()
        self.answers[path] = httpx2.Response(status, content=body, headers={"Date": SAID})


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def metadata(service: Service) -> Iterator[InstanceMetadata]:
    asked = InstanceMetadata(URL, httpx2.MockTransport(service))
    yield asked
    asked.close()


def test_one_token_serves_many_reads(service: Service, metadata: InstanceMetadata) -> None:
    assert metadata.notice() is None
    assert metadata.rebalance() is None
    assert service.asked == ["PUT /latest/api/token", f"GET {NOTICE}", f"GET {REBALANCE}"]


def test_a_token_that_is_refused_is_fetched_anew_once(
    service: Service, metadata: InstanceMetadata
) -> None:
    assert metadata.notice() is None
    service.tokens += 1  # as after a restart of the service: what it gave before is nothing to it
    assert metadata.notice() is None
    assert service.asked.count("PUT /latest/api/token") == 2
    service.say(NOTICE, {}, status=401)
    with pytest.raises(Unavailable, match="401"):
        metadata.notice()
    assert service.asked.count("PUT /latest/api/token") == 3


def test_a_token_is_fetched_anew_before_it_runs_out(
    service: Service, metadata: InstanceMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("infra.aws.metadata.time.monotonic", lambda: now_s)
    assert metadata.notice() is None
    now_s += TOKEN_AGE_S - 1
    assert metadata.notice() is None
    assert service.tokens == 1
    now_s += 1
    assert metadata.notice() is None
    assert service.tokens == 2


def test_who_the_instance_is(service: Service, metadata: InstanceMetadata) -> None:
    told = {"instanceId": "i-0abc", "availabilityZone": "us-east-1b", "region": "us-east-1"}
    service.say(IDENTITY, told | {"accountId": "1"})
    assert metadata.identity() == InstanceIdentity("i-0abc", "us-east-1b", "us-east-1")


@pytest.mark.parametrize(
    ("at", "in_ns"),
    [
        ("2026-12-01T10:02:00Z", 120 * NS_PER_SECOND),
        ("2026-12-01T11:02:00+01:00", 120 * NS_PER_SECOND),
        ("2026-12-01T10:02:00", 120 * NS_PER_SECOND),
        ("2026-12-01T09:59:00Z", 0),
        ("2027-12-01T10:02:00Z", LONGEST_NOTICE_NS),
        ("soon", USUAL_NOTICE_NS),
        (None, USUAL_NOTICE_NS),
    ],
)
def test_a_notice_counts_by_the_services_own_clock_and_within_reason(
    service: Service, metadata: InstanceMetadata, at: object, in_ns: int
) -> None:
    service.say(NOTICE, {"action": "terminate", "time": at})
    notice = metadata.notice()
    assert notice is not None
    assert (notice.action, notice.in_ns) == ("terminate", in_ns)


def test_a_rebalance_is_told_in_the_clouds_words(
    service: Service, metadata: InstanceMetadata
) -> None:
    service.say(REBALANCE, {"noticeTime": "2026-12-01T10:02:00Z"})
    assert metadata.rebalance() == "2026-12-01T10:02:00Z"


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(200, content=b"<html>"),
        httpx2.Response(200, content=b"[]"),
        httpx2.Response(200, content=b"{}"),
        httpx2.Response(200, content=b'{"action": 1}'),
        httpx2.Response(200, content=b"\xff\xfe"),
        httpx2.Response(200, content=b'{"action": "' + b"x" * MAX_BYTES + b'"}'),
        httpx2.Response(302, headers={"Location": "http://elsewhere.test/"}),
        httpx2.Response(403),
        httpx2.Response(500),
        httpx2.ConnectError("refused"),
        httpx2.ReadTimeout(""),
    ],
)
def test_what_is_no_answer_is_no_notice_and_no_absence_of_one(
    service: Service, metadata: InstanceMetadata, answer: httpx2.Response | Exception
) -> None:
    service.answers[NOTICE] = answer
    with pytest.raises(Unavailable) as away:
        metadata.notice()
    assert away.value.code == "metadata_away"
    assert len(service.asked) == 2  # nothing was followed, nothing asked again


def test_an_identity_that_is_not_there_is_no_identity(metadata: InstanceMetadata) -> None:
    with pytest.raises(Unavailable, match="knows no"):
        metadata.identity()


@pytest.mark.parametrize("token", ["", "two\nlines", "caf\u00e9"])
def test_a_token_that_is_none_is_not_sent(token: str) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.method == "PUT"
        return httpx2.Response(200, text=token)

    transport: Callable[[httpx2.Request], httpx2.Response] = answer
    asked = InstanceMetadata(URL, httpx2.MockTransport(transport))
    with pytest.raises(Unavailable, match="token"):
        asked.notice()
    asked.close()
