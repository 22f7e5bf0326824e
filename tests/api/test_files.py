"""Bytes by their hash: streamed, checked, kept once, and never whole in memory."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.api.bodies import MAX_FILE_BYTES
from tests.api.world import Door, raw

MIB = 1024 * 1024


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_bytes_are_kept_once_and_found(door: Door) -> None:
    content = b"content"
    path = f"/v1/files/{_sha256(content)}"
    assert door.client.head(path).status_code == 404
    first = door.client.put(path, content=content)
    assert (first.status_code, first.json()) == (
        201,
        {"sha256": _sha256(content), "bytes": len(content)},
    )
    assert door.client.put(path, content=content).status_code == 200
    found = door.client.head(path)
    assert (found.status_code, found.content) == (200, b"")


def test_bytes_that_are_not_what_they_are_called(still: Door) -> None:
    path = f"/v1/files/{_sha256(b'content')}"
    still.refused("PUT", path, 400, "hash_mismatch", content=b"other content")
    assert still.client.head(path).status_code == 404


@pytest.mark.parametrize("name", ["x", "0" * 63, "A" * 64, "..", "0" * 65])
def test_a_name_is_a_hash(still: Door, name: str) -> None:
    assert still.client.put(f"/v1/files/{name}", content=b"").status_code in (400, 404)


def test_a_file_over_the_limit_is_refused_by_its_length(still: Door) -> None:
    length = ("content-length", str(MAX_FILE_BYTES + 1))
    seen = raw(still, "PUT", f"/v1/files/{'0' * 64}", headers=[length], chunks=[b"x"])
    assert (seen.status, seen.error["code"]) == (413, "too_large")
    assert seen.error["details"] == {"limit_bytes": MAX_FILE_BYTES}


def test_an_upload_is_never_whole_in_memory_and_leaves_nothing_beside_itself(
    door: Door, tmp_path: Path
) -> None:
    content, times = os.urandom(MIB), 48
    digest = hashlib.sha256()
    for _ in range(times):
        digest.update(content)
    before = {path for path in tmp_path.iterdir() if path.is_file()}

    def chunks() -> Iterator[bytes]:
        for _ in range(times):
            yield bytes(content)

    tracemalloc.start()
    try:
        seen = raw(door, "PUT", f"/v1/files/{digest.hexdigest()}", chunks=chunks())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen.status == 201
    assert peak < 12 * MIB
    after = {path for path in tmp_path.iterdir() if path.is_file()}
    assert after == before


def test_a_sender_that_breaks_off_leaves_nothing(door: Door, tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionResetError("gone")

    before = sorted(tmp_path.rglob("*"))
    path = f"/v1/files/{_sha256(b'half a file')}"
    seen = raw(door, "PUT", path, chunks=chunks())
    assert seen.status == 500
    assert sorted(tmp_path.rglob("*")) == before
    assert door.client.head(path).status_code == 404


def test_a_sender_that_falls_silent_is_given_up(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.bodies.SILENCE_S", 0.01)
    seen = raw(door, "PUT", f"/v1/files/{'0' * 64}", chunks=iter([b"half"]), silent=True)
    assert (seen.status, seen.error["code"]) == (400, "upload_stalled")
