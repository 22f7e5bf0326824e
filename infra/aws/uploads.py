"""One object written to S3 piece by piece, which nobody sees before its bytes are proven."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from botocore.exceptions import BotoCoreError, ClientError

from app.errors import BadRequest, TooLarge

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import CompletedPartTypeDef

# S3 takes 10,000 parts of at least 5 MiB each: so the largest object has 80 GiB, of which one part is in memory.
BLOCK_BYTES = 1024 * 1024
PART_BYTES = 8 * 1024 * 1024


class Counted:
    """A source that is hashed and counted as it is read. Reading past the limit raises TooLarge."""

    def __init__(self, source: BinaryIO, limit_bytes: int) -> None:
        self._source = source
        self._limit = limit_bytes
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def read(self, size: int) -> bytes:
        """As `read` of a file."""
        block = self._source.read(size)
        self.size += len(block)
        if self.size > self._limit:
            raise TooLarge("too_large", f"more than {self._limit} bytes", limit_bytes=self._limit)
        self._digest.update(block)
        return block

    def read_all(self) -> None:
        while self.read(BLOCK_BYTES):
            pass

    def must_be(self, expect: str) -> None:
        """Raises BadRequest(hash_mismatch)."""
        if self.sha256 != expect:
            raise BadRequest("hash_mismatch", f"the bytes have sha256 {self.sha256}, not {expect}")


@dataclass(frozen=True, slots=True)
class Encryption:
    """How an object is encrypted where it is stored: the arguments of every request that writes one."""

    arguments: dict[str, Any]

    @classmethod
    def of(cls, kms_key: str | None) -> Self:
        """With this key of the account's, or with the store's own."""
        if kms_key is None:
            return cls({"ServerSideEncryption": "AES256"})
        return cls({"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key})


def upload(
    client: S3Client,
    bucket: str,
    key: str,
    source: Counted,
    *,
    encryption: Encryption,
    proven: Callable[[], None],
) -> None:
    """Write all of `source`; the object comes to be only after `proven`, called at its end, has not raised.

    S3 checks each request's bytes by their sha256. Raises what the source, `proven` and boto3 raise; then nothing is
    left behind, as long as S3 still answers. (Where it does not, the upload is found by its age.)
    """
    first = _part(source)
    if len(first) < PART_BYTES:
        proven()
        client.put_object(
            Bucket=bucket, Key=key, Body=first, ChecksumAlgorithm="SHA256", **encryption.arguments
        )
        return
    begun = client.create_multipart_upload(
        Bucket=bucket, Key=key, ChecksumAlgorithm="SHA256", **encryption.arguments
    )
    upload_id = begun["UploadId"]
    try:
        parts = list(_sent(client, bucket, key, upload_id, first, source))
        proven()
        client.complete_multipart_upload(
            Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts}
        )
    except BaseException:
        # Whatever it was, an interrupt too: what was sent would be paid for by the month.
        with suppress(ClientError, BotoCoreError):
            client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
        raise


def _sent(
    client: S3Client, bucket: str, key: str, upload_id: str, first: bytes, source: Counted
) -> Iterator[CompletedPartTypeDef]:
    number, part = 1, first
    while part:
        told = client.upload_part(
            Bucket=bucket,
            Key=key,
            UploadId=upload_id,
            PartNumber=number,
            Body=part,
            ChecksumAlgorithm="SHA256",
        )
        sha256 = told.get("ChecksumSHA256")
        seen: CompletedPartTypeDef = {"PartNumber": number, "ETag": told["ETag"]}
        yield {**seen, "ChecksumSHA256": sha256} if sha256 else seen
        number, part = number + 1, _part(source)


def _part(source: Counted) -> bytes:
    """As much as a part holds, less at the end only."""
    part = bytearray()
    while len(part) < PART_BYTES and (block := source.read(PART_BYTES - len(part))):
        part += block
    return bytes(part)
