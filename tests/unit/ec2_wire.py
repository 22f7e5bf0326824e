"""EC2 without a network: what a client would send is kept, and answered from a list; and its answers as XML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl

from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from infra.aws.session import ATTEMPTS, Account

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client

VOLUME, SNAPSHOT = "vol-0123456789abcdef0", "snap-0123456789abcdef0"
# When all of them were made.
AT = "2026-07-01T10:00:00.000Z"


class Wire:
    """Takes what a client would send, and answers it from a list; `sent` are its parameters, `urls` where it goes."""

    def __init__(self) -> None:
        self.sent: list[dict[str, str]] = []
        self.urls: list[str] = []
        self.answers: list[tuple[int, str]] = []

    def says(self, body: str, status: int = 200) -> None:
        self.answers.append((status, body))

    def refuses(self, code: str, message: str = "", status: int = 400) -> None:
        self.says(
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
            "<RequestID>req-1</RequestID></Response>",
            status,
        )

    def answer(self, request: AWSPreparedRequest) -> AWSResponse:
        self.urls.append(str(request.url))
        body = request.body
        self.sent.append(dict(parse_qsl(body.decode() if isinstance(body, bytes) else str(body))))
        status, answer = self.answers.pop(0)
        return AWSResponse(request.url, status, {}, Raw(answer))  # type: ignore[arg-type]

    @property
    def actions(self) -> list[str]:
        return [sent["Action"] for sent in self.sent]


class Raw:
    """The body of an answer, as it comes off a connection."""

    def __init__(self, body: str) -> None:
        self._body = body.encode()

    def stream(self) -> Iterator[bytes]:
        yield self._body


class Wired(Account):
    """An account whose clients are on that wire."""

    wire = Wire()

    def ec2(self, attempts: int = ATTEMPTS) -> EC2Client:
        client = super().ec2(attempts)
        # What a handler of this event returns is taken for the answer, which the stubs do not know.
        events = cast(Any, client.meta.events)
        events.register("before-send.ec2", lambda **sent: self.wire.answer(sent["request"]))
        return client


def without_noise(sent: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in sent.items() if name != "Version"}


def volume_xml(
    state: str,
    *,
    volume_id: str = VOLUME,
    snapshot: str = "",
    at: tuple[str, str] | None = None,
    bound: bool = False,
) -> str:
    attached = (
        f"<item><instanceId>{at[0]}</instanceId><device>/dev/sdf</device><status>{at[1]}</status>"
        f"<deleteOnTermination>{str(bound).lower()}</deleteOnTermination></item>"
        if at
        else ""
    )
    return (
        f"<volumeId>{volume_id}</volumeId><size>8</size><snapshotId>{snapshot}</snapshotId>"
        f"<availabilityZone>eu-west-1a</availabilityZone><status>{state}</status>"
        f"<createTime>{AT}</createTime><attachmentSet>{attached}</attachmentSet>"
    )


def volumes_xml(volume: str, token: str = "") -> str:
    return f"<R><volumeSet><item>{volume}</item></volumeSet><nextToken>{token}</nextToken></R>"


def snapshot_xml(state: str, *, progress: str, message: str = "") -> str:
    return (
        f"<snapshotId>{SNAPSHOT}</snapshotId><volumeId>{VOLUME}</volumeId><status>{state}</status>"
        f"<startTime>{AT}</startTime><progress>{progress}</progress><ownerId>111122223333</ownerId>"
        f"<volumeSize>8</volumeSize><statusMessage>{message}</statusMessage>"
    )


def snapshots_xml(snapshot: str) -> str:
    return f"<R><snapshotSet><item>{snapshot}</item></snapshotSet></R>"
