"""Bytes by their hash, whole or not at all: in a folder and in a bucket, by one contract."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from app.errors import BadRequest, NotFound, TooLarge, Unavailable
from infra.blobs import FolderBlobs
from tests.contract.blob_rig import (
    BYTES,
    DAY_NS,
    DAY_S,
    LIMIT,
    SHA256,
    Bucket,
    Folder,
    Subject,
    large,
    put,
)

# Any group of this process's: root has all of them.
GROUP = 10_001 if os.geteuid() == 0 else os.getgid()


@pytest.fixture(params=["folder", "bucket"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    if request.param == "folder":
        return Folder(FolderBlobs(tmp_path / "blobs"), tmp_path / "blobs")
    made: Bucket = request.getfixturevalue("bucket")
    return made


def test_bytes_are_kept_under_their_hash_once(subject: Subject) -> None:
    assert put(subject, BYTES) == SHA256
    assert put(subject, BYTES, SHA256) == SHA256
    assert put(subject, BYTES) == SHA256

    assert subject.blobs.has(SHA256)
    with subject.blobs.open(SHA256) as kept:
        assert kept.read() == BYTES
    assert subject.kept() == [SHA256]


def test_no_bytes_are_bytes_too(subject: Subject) -> None:
    empty = put(subject, b"")
    with subject.blobs.open(empty) as kept:
        assert kept.read() == b""


@pytest.mark.parametrize("announced", [True, False])
def test_many_bytes_come_back_as_they_were(subject: Subject, announced: bool) -> None:
    data, sha256 = large(9 * 1024 * 1024 + 1)
    assert put(subject, data, sha256 if announced else None, limit=len(data)) == sha256
    with subject.blobs.open(sha256) as kept:
        parts = list(iter(lambda: kept.read(1 << 20), b""))
    assert b"".join(parts) == data
    assert subject.kept() == [sha256]


def test_a_file_can_be_sought_in(subject: Subject) -> None:
    data, sha256 = large(3 * 1024 * 1024)
    put(subject, data, limit=len(data))
    with subject.blobs.open(sha256) as kept:
        kept.seek(2_000_000)
        assert kept.read(10) == data[2_000_000:2_000_010]
        kept.seek(5)
        assert kept.read() == data[5:]
        kept.seek(len(data) + 7)
        assert kept.read(1) == b""


@pytest.mark.parametrize("size", [14, 9 * 1024 * 1024])
def test_other_bytes_than_announced_are_refused_and_not_kept(subject: Subject, size: int) -> None:
    data, sha256 = large(size)
    with pytest.raises(BadRequest, match=sha256) as refused:
        put(subject, data, "0" * 64, limit=size)

    assert refused.value.code == "hash_mismatch"
    assert subject.kept() == []
    assert not subject.blobs.has("0" * 64)


def test_other_bytes_under_a_hash_that_is_there_are_refused(subject: Subject) -> None:
    put(subject, BYTES)
    with pytest.raises(BadRequest) as refused:
        put(subject, b"others", SHA256)
    assert refused.value.code == "hash_mismatch"
    with subject.blobs.open(SHA256) as kept:
        assert kept.read() == BYTES


@pytest.mark.parametrize("limit", [LIMIT, 9 * 1024 * 1024])
def test_too_many_bytes_are_refused_before_they_are_kept(subject: Subject, limit: int) -> None:
    data, sha256 = large(limit + 1)
    for expect in (None, sha256):
        with pytest.raises(TooLarge):
            put(subject, data, expect, limit=limit)
    assert subject.kept() == []

    put(subject, data[:-1], limit=limit)
    assert len(subject.kept()) == 1


def test_what_is_not_there_is_not_found_and_deleting_it_is_safe(subject: Subject) -> None:
    put(subject, BYTES)
    subject.blobs.delete([SHA256])
    subject.blobs.delete([SHA256])

    assert subject.kept() == []
    assert not subject.blobs.has(SHA256)
    with pytest.raises(NotFound):
        subject.blobs.open(SHA256)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "a" * 63, "A" * 64, "g" * 64])
def test_a_hash_is_no_path(subject: Subject, name: str) -> None:
    with pytest.raises(BadRequest, match="hex digits"):
        subject.blobs.open(name)


def test_what_nobody_asked_for_in_a_day_is_old_and_goes(subject: Subject) -> None:
    old, young = put(subject, b"old"), put(subject, b"young")
    subject.age(old, DAY_S + 60)
    subject.age(young, DAY_S - 60)

    assert subject.blobs.older_than(DAY_NS) == {old}
    assert not subject.blobs.delete_older(young, DAY_NS)
    assert subject.blobs.delete_older(old, DAY_NS)
    assert not subject.blobs.delete_older(old, DAY_NS)
    assert subject.kept() == [young]


@pytest.mark.parametrize("by", ["asked", "put", "announced"])
def test_what_is_asked_for_or_put_again_is_young_again(subject: Subject, by: str) -> None:
    put(subject, BYTES)
    subject.age(SHA256, DAY_S + 60)
    if by == "asked":
        assert subject.blobs.has(SHA256)
    else:
        put(subject, BYTES, SHA256 if by == "announced" else None)

    assert subject.blobs.older_than(DAY_NS) == frozenset()
    assert not subject.blobs.delete_older(SHA256, DAY_NS)
    assert subject.kept() == [SHA256]


def test_a_folder_that_cannot_be_written_is_our_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable):
        FolderBlobs(tmp_path / "file" / "below").put(
            io.BytesIO(BYTES), expect=None, limit_bytes=LIMIT
        )


def test_a_folder_made_for_a_group_keeps_all_for_that_group(tmp_path: Path) -> None:
    """The API's user and a host's root share it: each reads, ages and forgets what the other put."""
    folder = tmp_path / "blobs"
    folder.mkdir()
    os.chown(folder, -1, GROUP)
    folder.chmod(0o2770)

    put(Folder(FolderBlobs(folder), folder), BYTES)

    (kept,) = folder.glob("??/*")
    assert (kept.stat().st_gid, kept.stat().st_mode & 0o777) == (GROUP, 0o660)
    assert (kept.parent.stat().st_gid, kept.parent.stat().st_mode & 0o777) == (GROUP, 0o770)


def test_any_other_folder_is_its_owners_alone(tmp_path: Path) -> None:
    put(Folder(FolderBlobs(tmp_path / "blobs"), tmp_path / "blobs"), BYTES)

    (kept,) = tmp_path.glob("blobs/??/*")
    opened = [path.stat().st_mode & 0o077 for path in (kept, kept.parent, kept.parent.parent)]
    assert opened == [0, 0, 0]
