"""What a bucket has beside the contract of blobs: races, broken connections, remains, encryption, a setting."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ResponseStreamingError
from botocore.response import StreamingBody
from pydantic import SecretStr, ValidationError

from app.domain.leak import LeakKind
from app.errors import Unavailable
from infra import wiring
from infra.aws.blobs import S3Blobs
from infra.settings import Settings
from tests.contract.blob_rig import (
    BYTES,
    DAY_NS,
    DAY_S,
    LIMIT,
    PREFIX,
    SHA256,
    Bucket,
    large,
    put,
)
from tests.contract.moto_server import REGION

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client


class Between:
    """Does something once, just before a request of this name is sent."""

    def __init__(self, s3: S3Client, request: str, act: Any) -> None:
        self._act: Any = act
        self._event = f"before-call.s3.{request}"
        self._s3 = s3
        s3.meta.events.register(self._event, self._do)

    def _do(self, **_: Any) -> None:
        self._s3.meta.events.unregister(self._event, self._do)
        self._act()


def test_who_asks_while_old_bytes_are_being_forgotten_keeps_them(bucket: Bucket) -> None:
    put(bucket, BYTES)
    bucket.age(SHA256, DAY_S + 60)
    asked: list[bool] = []
    Between(bucket.s3, "DeleteObject", lambda: asked.append(bucket.blobs.has(SHA256)))

    assert not bucket.blobs.delete_older(SHA256, DAY_NS)
    assert asked == [True]
    assert bucket.kept() == [SHA256]


def test_who_puts_bytes_that_are_just_forgotten_has_them_anew(bucket: Bucket) -> None:
    """The name is deleted, and its bytes not yet: what is put in between is not what is deleted then."""
    put(bucket, BYTES)
    bucket.age(SHA256, DAY_S + 60)

    def after_the_name() -> None:
        Between(bucket.s3, "DeleteObject", lambda: put(bucket, BYTES, SHA256))

    Between(bucket.s3, "DeleteObject", after_the_name)
    assert bucket.blobs.delete_older(SHA256, DAY_NS)
    with bucket.blobs.open(SHA256) as kept:
        assert kept.read() == BYTES
    assert bucket.kept() == [SHA256]


def test_two_that_put_the_same_bytes_at_once_keep_them_once(bucket: Bucket) -> None:
    Between(bucket.s3, "PutObject", lambda: put(bucket, BYTES, SHA256))
    put(bucket, BYTES, SHA256)
    assert bucket.kept() == [SHA256]


def test_a_name_whose_answer_was_lost_is_ones_own(bucket: Bucket) -> None:
    """The client asks again for itself: then the name that is in its way is its own."""
    real, asked = bucket.s3.put_object, []

    def twice(**request: Any) -> Any:
        asked.append(request["Key"])
        told = real(**request)
        return real(**request) if "IfNoneMatch" in request else told

    bucket.s3.put_object = twice  # type: ignore[method-assign]
    try:
        put(bucket, BYTES, SHA256)
    finally:
        bucket.s3.put_object = real  # type: ignore[method-assign]
    assert len(asked) == 2
    with bucket.blobs.open(SHA256) as kept:
        assert kept.read() == BYTES


def test_bytes_that_became_others_are_told_before_the_last_is_read(bucket: Bucket) -> None:
    data, sha256 = large(3 * 1024 * 1024)
    put(bucket, data, limit=len(data))
    (key,) = bucket.keys("bytes/")
    bucket.s3.put_object(Bucket=bucket.name, Key=key, Body=data[:-1] + b"x")
    with bucket.blobs.open(sha256) as kept:
        first = kept.read(2 << 20)
        with pytest.raises(Unavailable) as refused:
            kept.read(2 << 20)
    assert first == data[: 2 << 20]
    assert refused.value.code == "blob_corrupt"


def test_a_connection_that_breaks_is_gone_on_with_from_where_it_was(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, sha256 = large(3 * 1024 * 1024)
    put(bucket, data, limit=len(data))
    real, breaks = StreamingBody.read, [2, 3, 4]
    count = iter(range(1000))

    def read(body: StreamingBody, amt: int | None = None) -> bytes:
        if next(count) in breaks:
            raise ResponseStreamingError(error="reset by peer")
        return real(body, min(amt or 0, 700_000))

    with bucket.blobs.open(sha256) as kept:
        monkeypatch.setattr(StreamingBody, "read", read)
        assert kept.read() == data
        breaks[:] = range(1000)
        kept.seek(0)
        with pytest.raises(Unavailable, match="broke off 4 times at byte 0") as away:
            kept.read(1)
    assert away.value.code == "blobs_away"


@pytest.mark.parametrize("request_name", ["UploadPart", "CompleteMultipartUpload"])
def test_an_upload_that_fails_leaves_nothing_behind(bucket: Bucket, request_name: str) -> None:
    data, sha256 = large(9 * 1024 * 1024)

    def fail() -> None:
        raise ConnectionResetError

    Between(bucket.s3, request_name, fail)
    with pytest.raises(ConnectionResetError):
        put(bucket, data, sha256, limit=len(data))
    assert bucket.kept() == []


def test_a_bucket_that_is_none_of_ours_is_our_fault(s3: S3Client) -> None:
    blobs = S3Blobs(s3, "no-such-bucket")
    for act in (
        lambda: blobs.has(SHA256),
        lambda: blobs.open(SHA256),
        lambda: blobs.put(io.BytesIO(BYTES), expect=None, limit_bytes=LIMIT),
        lambda: blobs.older_than(0),
        lambda: blobs.delete([SHA256]),
        lambda: blobs.found(),
    ):
        with pytest.raises(Unavailable) as away:
            act()
        assert away.value.code == "blobs_away"
        assert away.value.details["cloud_code"] == "NoSuchBucket"


@pytest.mark.parametrize(
    ("key", "said"),
    [(None, ("AES256", None)), ("alias/files", ("aws:kms", "alias/files"))],
)
def test_all_is_encrypted_where_it_is_kept(
    bucket: Bucket, key: str | None, said: tuple[str, str | None]
) -> None:
    blobs = S3Blobs(bucket.s3, bucket.name, PREFIX, kms_key=key)
    data, _ = large(9 * 1024 * 1024)
    for each in (data, BYTES):
        blobs.put(io.BytesIO(each), expect=None, limit_bytes=len(data))
    keys = [*bucket.keys("bytes/"), *bucket.keys("names/")]
    assert len(keys) == 4
    for kept in keys:
        seen = bucket.s3.head_object(Bucket=bucket.name, Key=kept)
        assert (seen["ServerSideEncryption"], seen.get("SSEKMSKeyId")) == said


def test_what_is_left_of_uploads_is_found_and_goes_and_others_stay(bucket: Bucket) -> None:
    kept, lone = put(bucket, b"kept"), put(bucket, b"lone")
    bucket.s3.delete_object(Bucket=bucket.name, Key=f"{PREFIX}/names/{lone}")
    nameless = bucket.age_bytes(lone, 7200)
    twice = f"{PREFIX}/bytes/{kept}.{'0' * 16}"  # of an upload that lost the race, and died
    for key in (twice, f"{PREFIX}/bytes/notes.txt", "files/another/bytes/" + nameless[6:]):
        bucket.s3.put_object(Bucket=bucket.name, Key=key, Body=b"")
    begun = bucket.s3.create_multipart_upload(Bucket=bucket.name, Key=f"{PREFIX}/{nameless}")
    bucket.s3.create_multipart_upload(Bucket=bucket.name, Key="another/upload")

    seen = {trace.leak.name: trace.leak for trace in bucket.blobs.found()}
    unfinished = f"{nameless}#{begun['UploadId']}"
    assert seen.keys() == {nameless, twice.removeprefix(f"{PREFIX}/"), unfinished}
    assert 7190 * 10**9 < (seen[nameless].age_ns or 0) < 7300 * 10**9

    assert all(bucket.blobs.remove(leak) for leak in seen.values())
    assert bucket.blobs.found() == ()
    assert not bucket.blobs.remove(seen[unfinished])
    assert len(bucket.uploads()) == 1
    assert put(bucket, b"kept", kept) == kept
    assert max(bucket.keys("bytes/")) == f"{PREFIX}/bytes/notes.txt"


def test_bytes_that_got_their_name_meanwhile_are_no_remains(bucket: Bucket) -> None:
    put(bucket, BYTES)
    name = bucket.keys("names/")[0]
    said = bucket.s3.get_object(Bucket=bucket.name, Key=name)["Body"].read()
    bucket.s3.delete_object(Bucket=bucket.name, Key=name)
    (trace,) = bucket.blobs.found()
    bucket.s3.put_object(Bucket=bucket.name, Key=name, Body=said)
    assert not bucket.blobs.remove(trace.leak)
    assert bucket.kept() == [SHA256]


def test_more_than_a_page_is_listed(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    kept = {put(bucket, b"%d" % number) for number in range(5)}
    assert len(bucket.keys("names/")) == 2
    assert bucket.blobs.older_than(-1) == kept


def test_a_deployment_keeps_its_files_where_its_setting_says(
    bucket: Bucket, tmp_path: Path
) -> None:
    settings = Settings(
        dir=tmp_path,
        machines="fake",
        redis_url=SecretStr("redis://127.0.0.1:1/0"),
        blobs=f"s3://{bucket.name}/{PREFIX}",
        aws_region=REGION,
        aws_endpoint=bucket.s3.meta.endpoint_url,
    )
    with wiring.control(settings) as control:
        control.ports.blobs.put(io.BytesIO(BYTES), expect=SHA256, limit_bytes=LIMIT)
        assert control.uploads is not None
        assert control.uploads.found() == ()
    assert bucket.kept() == [SHA256]
    assert not (tmp_path / "blobs").exists()
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / ".new-1").touch()
    kinds = {trace.leak.kind for trace in wiring.traces(settings).found()}
    assert LeakKind.BLOB_REMAINS not in kinds


@pytest.mark.parametrize(
    "blobs", ["s3:/bucket", "s3://", "https://bucket", "s3://Bucket/files", "/files"]
)
def test_a_bucket_that_is_none_is_refused(blobs: str) -> None:
    with pytest.raises(ValidationError, match="blobs"):
        Settings(blobs=blobs, aws_region=REGION)


def test_a_bucket_needs_its_region() -> None:
    with pytest.raises(ValidationError, match="aws_region"):
        Settings(blobs="s3://bucket")
