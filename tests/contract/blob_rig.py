"""Blobs in a folder and in a bucket of a moto server, and what tests see and do beside them."""

from __future__ import annotations

import hashlib
import io
import os
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from app.ports import Blobs
from infra.aws.blobs import S3Blobs
from infra.blobs import FolderBlobs

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

BYTES = b"the same bytes"
SHA256 = hashlib.sha256(BYTES).hexdigest()
LIMIT = 1024
DAY_S = 24 * 3600
DAY_NS = DAY_S * 10**9
PREFIX = "files/ours"


class Subject(Protocol):
    """Blobs, and what a test sees and does beside them."""

    @property
    def blobs(self) -> Blobs: ...

    def age(self, sha256: str, seconds: float) -> None:
        """Let the bytes be so old."""
        ...

    def kept(self) -> list[str]:
        """What is there, by hash, as often as its bytes are kept; half done uploads too."""
        ...


@dataclass
class Folder:
    blobs: FolderBlobs
    path: Path

    def age(self, sha256: str, seconds: float) -> None:
        then = time.time() - seconds
        os.utime(self.path / sha256[:2] / sha256, (then, then))

    def kept(self) -> list[str]:
        return sorted(path.name for path in self.path.rglob("*") if path.is_file())


@dataclass
class Bucket:
    blobs: S3Blobs
    name: str
    s3: S3Client

    def age(self, sha256: str, seconds: float) -> None:
        self._object(f"{PREFIX}/names/{sha256}").last_modified = _ago(seconds)

    def age_bytes(self, sha256: str, seconds: float) -> str:
        (key,) = (key for key in self.keys("bytes/") if sha256 in key)
        self._object(key).last_modified = _ago(seconds)
        return key.removeprefix(f"{PREFIX}/")

    def kept(self) -> list[str]:
        bytes_kept = [key.rpartition("/")[2].partition(".")[0] for key in self.keys("bytes/")]
        assert len(bytes_kept) == len(self.keys("names/")), "each has its name"
        return sorted([*bytes_kept, *self.uploads()])

    def keys(self, below: str) -> list[str]:
        listed = self.s3.list_objects_v2(Bucket=self.name, Prefix=f"{PREFIX}/{below}")
        return [found["Key"] for found in listed.get("Contents", ())]

    def uploads(self) -> list[str]:
        listed = self.s3.list_multipart_uploads(Bucket=self.name)
        return [begun["UploadId"] for begun in listed.get("Uploads", ())]

    def _object(self, key: str) -> Any:
        return s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[self.name].keys[key]


def bucket_of(s3: S3Client, test: str) -> Bucket:
    """A new one for a test of that name."""
    name = f"bucket-{hashlib.sha256(test.encode()).hexdigest()[:16]}"
    s3.create_bucket(Bucket=name)
    return Bucket(S3Blobs(s3, name, PREFIX), name, s3)


def put(subject: Subject, data: bytes, expect: str | None = None, limit: int = LIMIT) -> str:
    sha256, size = subject.blobs.put(io.BytesIO(data), expect=expect, limit_bytes=limit)
    assert size == len(data)
    return sha256


def large(size: int) -> tuple[bytes, str]:
    data = random.Random(size).randbytes(size)
    return data, hashlib.sha256(data).hexdigest()


def _ago(seconds: float) -> datetime:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).replace(tzinfo=None)
