"""An object of S3 read as a file: sought in, gone on with after a broken connection, and checked by its hash."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from app.errors import Unavailable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from botocore.response import StreamingBody
    from types_boto3_s3 import S3Client

_ATTEMPTS = 4


class Checked(io.RawIOBase):
    """The bytes of an object, which have this sha256.

    Who reads from the first to the last is told by Unavailable(blob_corrupt), before the last are handed over, when
    they are others. Making one raises what boto3 raises; reading, Unavailable(blobs_away).
    """

    def __init__(self, client: S3Client, bucket: str, key: str, sha256: str) -> None:
        super().__init__()
        self._s3 = client
        self._bucket, self._key, self._sha256 = bucket, key, sha256
        seen = client.get_object(Bucket=bucket, Key=key)
        self._size = seen["ContentLength"]
        self._body: StreamingBody | None = seen["Body"]
        self._at = 0
        # How far the bytes were read in one go from the first; what is read again or beyond a gap proves nothing.
        self._digest, self._proven = hashlib.sha256(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset != self._at:
            self._at = max(0, base + offset)
            self._hang_up()
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        room = memoryview(buffer).cast("B")
        if self._at >= self._size or not room:
            return 0
        block = self._read(min(len(room), self._size - self._at))
        if self._at == self._proven:
            self._digest.update(block)
            self._proven += len(block)
            self._check()
        self._at += len(block)
        room[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._hang_up()
        super().close()

    def _check(self) -> None:
        if self._proven == self._size and self._digest.hexdigest() != self._sha256:
            raise Unavailable(
                "blob_corrupt",
                f"the bytes that are kept as {self._sha256} are others by now: delete them, and upload them again",
            )

    def _read(self, size: int) -> bytes:
        """At least one byte, over a connection of now or a new one."""
        seen: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                block = self._connected().read(size)
            except (BotoCoreError, ClientError, OSError) as broken:
                seen = broken
                self._hang_up()
                continue
            if block:
                return block
            self._hang_up()  # it ended early without saying so
        raise Unavailable(
            "blobs_away", f"a file broke off {_ATTEMPTS} times at byte {self._at} of {self._size}"
        ) from seen

    def _connected(self) -> StreamingBody:
        if self._body is None:
            span = f"bytes={self._at}-{self._size - 1}"
            self._body = self._s3.get_object(Bucket=self._bucket, Key=self._key, Range=span)["Body"]
        return self._body

    def _hang_up(self) -> None:
        if self._body is not None:
            self._body.close()
        self._body = None
