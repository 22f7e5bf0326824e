"""Bytes by their hash in a folder: whole or not at all."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest

from app.errors import BadRequest, NotFound, TooLarge, Unavailable
from infra.blobs import FolderBlobs

BYTES = b"the same bytes"
SHA256 = hashlib.sha256(BYTES).hexdigest()
LIMIT = 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def blobs(folder: Path) -> FolderBlobs:
    return FolderBlobs(folder)


def put(blobs: FolderBlobs, data: bytes, expect: str | None = None) -> tuple[str, int]:
    return blobs.put(io.BytesIO(data), expect=expect, limit_bytes=LIMIT)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_bytes_are_kept_under_their_hash_once(blobs: FolderBlobs, folder: Path) -> None:
    assert put(blobs, BYTES) == (SHA256, len(BYTES))
    assert put(blobs, BYTES, SHA256) == (SHA256, len(BYTES))

    assert blobs.has(SHA256)
    with blobs.open(SHA256) as kept:
        assert kept.read() == BYTES
    assert files(folder) == [SHA256]


def test_other_bytes_than_announced_are_refused_and_not_kept(
    blobs: FolderBlobs, folder: Path
) -> None:
    with pytest.raises(BadRequest, match=SHA256) as refused:
        put(blobs, BYTES, "0" * 64)

    assert refused.value.code == "hash_mismatch"
    assert files(folder) == []


def test_too_many_bytes_are_refused_before_they_fill_the_disk(
    blobs: FolderBlobs, folder: Path
) -> None:
    with pytest.raises(TooLarge):
        put(blobs, b"x" * (LIMIT + 1))

    assert put(blobs, b"x" * LIMIT)[1] == LIMIT
    assert len(files(folder)) == 1


def test_what_is_not_there_is_not_found_and_deleting_it_is_safe(blobs: FolderBlobs) -> None:
    put(blobs, BYTES)
    blobs.delete([SHA256])
    blobs.delete([SHA256])

    assert not blobs.has(SHA256)
    with pytest.raises(NotFound):
        blobs.open(SHA256)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "a" * 63, "A" * 64, "g" * 64])
def test_a_hash_is_no_path(blobs: FolderBlobs, name: str) -> None:
    with pytest.raises(BadRequest, match="hex digits"):
        blobs.open(name)


def test_a_folder_that_cannot_be_written_is_our_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Unavailable):
        put(FolderBlobs(tmp_path / "file" / "below"), BYTES)
