"""Bytes by their sha256 in a bucket that API and hosts share.

A blob is two objects: its bytes, under a name of their own that nobody else ever writes, and a small one under its
sha256 that says where the bytes are. The small one comes last and goes first, each time by a conditional request. So a
blob appears whole or not at all; it is made young again at a cost that does not grow with it; and who asks for it
while it is being forgotten as old either keeps it or is told that it is gone, in a bucket with versions or without.
"""

from __future__ import annotations

import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from io import BufferedReader
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from botocore.exceptions import BotoCoreError, ClientError

from app.domain.leak import Leak, LeakKind, Trace
from app.errors import BadRequest, NotFound, Unavailable
from infra.aws.reading import Checked
from infra.aws.uploads import BLOCK_BYTES, Counted, Encryption, upload

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

NAMES, BYTES = "names/", "bytes/"
# Between the key and the id of an upload that never ended; no key of ours has it.
UPLOAD = "#"
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Whatever else somebody keeps below our prefix is not ours.
_OURS = re.compile(r"names/[0-9a-f]{64}|bytes/[0-9a-f]{64}\.[0-9a-f]{16}")
_TURNS = 5
# What a conditional request is answered with when somebody was faster, and what a key that is not there.
_OTHERS = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})
_NOT_THERE = frozenset({"NoSuchKey", "404", "NotFound"})


@dataclass(frozen=True, slots=True)
class _Name:
    """The small object as it was seen: which bytes it names, its version, and its age by the bucket's clock."""

    bytes_key: str
    etag: str
    age_ns: int


class S3Blobs:
    """`Blobs`, and the `Traces` of uploads into it.

    Every object is encrypted where it is kept: with `kms_key`, or without one with S3's own key.

    All of it raises Unavailable(blobs_away) while the bucket does not answer, or refuses; its code and request id are
    in the details. `client` brings time-outs and bounded retries along.
    """

    def __init__(
        self, client: S3Client, bucket: str, prefix: str = "", kms_key: str | None = None
    ) -> None:
        self._s3 = client
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._encryption = Encryption.of(kms_key)

    def put(self, source: BinaryIO, *, expect: str | None, limit_bytes: int) -> tuple[str, int]:
        """Keep bytes; returns (sha256, size). Raises BadRequest(hash_mismatch), TooLarge, Unavailable."""
        if expect is None:
            return self._put_unknown(source, limit_bytes)
        counted = Counted(source, limit_bytes)
        if self.has(expect):
            counted.read_all()
            counted.must_be(expect)
        else:
            self._keep(counted, expect)
        return expect, counted.size

    def open(self, sha256: str) -> BinaryIO:
        """A file that can be sought in; bytes that are read from the first to the last are checked on their way.

        Raises NotFound; reading raises Unavailable(blob_corrupt) before the last of bytes that are not the named ones.
        """
        for _ in range(_TURNS):
            name = self._name(sha256)
            if name is None:
                break
            try:
                with answered():
                    checked = Checked(self._s3, self._bucket, name.bytes_key, sha256)
            except NotFound:
                continue  # forgotten between the two questions, or put anew elsewhere
            return cast("BinaryIO", BufferedReader(checked, BLOCK_BYTES))
        raise NotFound("unknown_file", f"no file {sha256} was uploaded")

    def has(self, sha256: str) -> bool:
        """Whether the bytes are here. If so they are young again: who asks is about to name them."""
        for _ in range(_TURNS):
            name = self._name(sha256)
            if name is None:
                return False
            if self._write_name(sha256, name.bytes_key, IfMatch=name.etag):
                return True
        raise Unavailable("blobs_away", f"{sha256} was changed by others {_TURNS} times in a row")

    def delete(self, sha256s: Iterable[str]) -> None:
        """Forget bytes. Twice is safe."""
        for sha256 in sha256s:
            name = self._name(sha256)
            if name is not None:
                self._delete(self._name_key(sha256))
                self._delete(name.bytes_key)

    def older_than(self, age_ns: int) -> frozenset[str]:
        """Bytes that nobody has put or asked for since."""
        return frozenset(_hash_in(key) for key, age in self._listed(NAMES) if age > age_ns)

    def delete_older(self, sha256: str, age_ns: int) -> bool:
        """Forget bytes unless they are young again; whether they were forgotten."""
        name = self._name(sha256)
        if name is None or name.age_ns <= age_ns:
            return False
        # Whoever asked for it since has written the name anew: then this is refused.
        if not self._delete(self._name_key(sha256), IfMatch=name.etag):
            return False
        self._delete(name.bytes_key)
        return True

    def found(self) -> tuple[Trace, ...]:
        """What is left of uploads that never ended: parts that were sent, and bytes that got no name."""
        with answered():
            return (*self._unfinished(), *self._nameless())

    def remove(self, leak: Leak) -> bool:
        """Make away with one of them; False if it has its name by now."""
        key, _, upload_id = leak.name.partition(UPLOAD)
        if not upload_id:
            return not self._is_named(key) and self._delete(self._prefix + key)
        try:
            with answered():
                self._s3.abort_multipart_upload(
                    Bucket=self._bucket, Key=self._prefix + key, UploadId=upload_id
                )
        except Unavailable as refused:
            if refused.details.get("cloud_code") != "NoSuchUpload":
                raise
            return False
        return True

    def _unfinished(self) -> Iterator[Trace]:
        """S3 lists no upload that was completed or given up."""
        pages = self._s3.get_paginator("list_multipart_uploads").paginate(
            Bucket=self._bucket, Prefix=self._prefix + BYTES
        )
        for page in pages:
            for begun in page.get("Uploads", ()):
                key = begun["Key"].removeprefix(self._prefix)
                age_ns = _age_ns(page["ResponseMetadata"], begun["Initiated"])
                if _OURS.fullmatch(key):
                    name = f"{key}{UPLOAD}{begun['UploadId']}"
                    yield _trace(name, "an upload never ended", age_ns)

    def _nameless(self) -> Iterator[Trace]:
        """Bytes first, names after: what got its name in between is none of them."""
        of_hash: dict[str, list[tuple[str, int]]] = {}
        for key, age_ns in self._listed(BYTES):
            of_hash.setdefault(_hash_in(key), []).append((key, age_ns))
        named = {_hash_in(key) for key, _ in self._listed(NAMES)}
        for sha256, found in of_hash.items():
            # A name always has its bytes: where there is one of each, they belong together.
            if sha256 in named and len(found) == 1:
                continue
            for key, age_ns in found:
                if not self._is_named(key):
                    yield _trace(key, "bytes without a name", age_ns)

    def _is_named(self, key: str) -> bool:
        name = self._name(_hash_in(key))
        return name is not None and name.bytes_key == self._prefix + key

    def _listed(self, below: str) -> Iterator[tuple[str, int]]:
        """Keys without our prefix, and their ages in ns, page by page."""
        with answered():
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + below
            )
            for page in pages:
                for found in page.get("Contents", ()):
                    key = found["Key"].removeprefix(self._prefix)
                    if _OURS.fullmatch(key):
                        yield key, _age_ns(page["ResponseMetadata"], found["LastModified"])

    def _put_unknown(self, source: BinaryIO, limit_bytes: int) -> tuple[str, int]:
        """Bytes whose hash, and so their name, is known only once all of them were read: they wait on disk for it."""
        with tempfile.TemporaryFile() as spool:
            counted = Counted(source, limit_bytes)
            try:
                while block := counted.read(BLOCK_BYTES):
                    spool.write(block)
                spool.seek(0)
            except OSError as error:
                raise Unavailable(
                    "blobs_away", f"files cannot be kept: {error.strerror}"
                ) from error
            return self.put(spool, expect=counted.sha256, limit_bytes=limit_bytes)

    def _keep(self, source: Counted, sha256: str) -> None:
        key = f"{self._prefix}{BYTES}{sha256}.{secrets.token_hex(8)}"
        with answered():
            upload(
                self._s3,
                self._bucket,
                key,
                source,
                encryption=self._encryption,
                proven=lambda: source.must_be(sha256),
            )
        for _ in range(_TURNS):
            if self._write_name(sha256, key, IfNoneMatch="*"):
                return
            name = self._name(sha256)
            if name is not None and name.bytes_key == key:
                return  # it was written, and its answer lost
            if self.has(sha256):  # another was faster with the very same bytes
                self._delete(key)
                return
        raise Unavailable("blobs_away", f"{sha256} was changed by others {_TURNS} times in a row")

    def _name(self, sha256: str) -> _Name | None:
        key = self._name_key(sha256)
        try:
            with answered():
                seen = self._s3.get_object(Bucket=self._bucket, Key=key)
                said = seen["Body"].read(256).decode("ascii", "replace")
        except NotFound:
            return None
        age_ns = _age_ns(seen["ResponseMetadata"], seen["LastModified"])
        return _Name(f"{self._prefix}{BYTES}{said.partition(' ')[0]}", seen["ETag"], age_ns)

    def _write_name(self, sha256: str, bytes_key: str, **condition: str) -> bool:
        """False if the condition does not hold. What is written differs each time, so that its ETag does."""
        said = f"{bytes_key.rpartition('/')[2]} {secrets.token_hex(8)}"
        extra: dict[str, Any] = {**self._encryption.arguments, **condition}
        key = self._name_key(sha256)
        try:
            with answered():
                self._s3.put_object(Bucket=self._bucket, Key=key, Body=said.encode(), **extra)
        except (NotFound, _Outrun):
            return False
        return True

    def _delete(self, key: str, **condition: str) -> bool:
        """False if the condition does not hold, or it had been deleted."""
        extra: dict[str, Any] = {**condition}
        try:
            with answered():
                self._s3.delete_object(Bucket=self._bucket, Key=key, **extra)
        except (NotFound, _Outrun):
            return False
        return True

    def _name_key(self, sha256: str) -> str:
        if not _SHA256.fullmatch(sha256):
            raise BadRequest("bad_hash", "a sha256 is 64 lower-case hex digits")
        return f"{self._prefix}{NAMES}{sha256}"


class _Outrun(Exception):
    """The object is not as the condition of a request says."""


@contextmanager
def answered() -> Iterator[None]:
    """Inside, what S3 refuses is told in our words. Raises NotFound, _Outrun, Unavailable(blobs_away)."""
    try:
        yield
    except ClientError as refused:
        error, about = refused.response.get("Error", {}), refused.response["ResponseMetadata"]
        code = str(error.get("Code", ""))
        if code in _OTHERS:
            raise _Outrun(code) from refused
        if code in _NOT_THERE:
            raise NotFound("unknown_file", "there is no such object") from refused
        request_id = about.get("RequestId", "")
        raise Unavailable(
            "blobs_away",
            f"the bucket of files refused: {code}",
            cloud_code=code,
            request_id=request_id,
        ) from refused
    except BotoCoreError as away:
        raise Unavailable(
            "blobs_away", f"the bucket of files did not answer: {type(away).__name__}"
        ) from away


def _hash_in(key: str) -> str:
    return key.rpartition("/")[2].partition(".")[0]


def _trace(name: str, detail: str, age_ns: int) -> Trace:
    return Trace(Leak(LeakKind.BLOB_REMAINS, name, detail, age_ns), owner=None)


def _age_ns(about: Any, modified: datetime) -> int:
    """By the bucket's own clock, which stands in its answer: to the second, as S3 tells times."""
    told = about["HTTPHeaders"].get("date")
    now = parsedate_to_datetime(told) if told else datetime.now(modified.tzinfo)
    return int((now - modified).total_seconds()) * 1_000_000_000
