"""A bundle's manifest: what it keeps, and that no changed byte passes it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.domain.machine import Accelerator, RestoreKey, Shape
from app.errors import EnvironmentFault, FailureKind
from infra import manifest
from infra.manifest import CHUNK_BYTES, Manifest

MIB = 1 << 20


def make(directory: Path, **files: bytes) -> Manifest:
    """A bundle of these files (`_` in a name stands for `.`), with its manifest."""
    directory.mkdir(exist_ok=True)
    names = {name.replace("_", "."): data for name, data in files.items()}
    for name, data in names.items():
        (directory / name).write_bytes(data)
    made = Manifest(
        shape=Shape(1, 128, 1),
        restore_key=RestoreKey("10.0.2", "pc-q35-10.0", Accelerator.TCG, "Westmere-v1"),
        boot_id="boot",
        disk_id="disk",
        taken_wall_ns=7,
        files={name: manifest.record(directory / name) for name in names},
    )
    manifest.write(directory, made)
    return made


def test_what_is_written_is_read(tmp_path: Path) -> None:
    made = make(tmp_path / "b", memory_img=b"m" * 5000, state_bin=b"")
    assert manifest.read(tmp_path / "b") == made
    bundle = made.bundle(tmp_path / "b")
    assert (bundle.bundle_id, bundle.boot_id, bundle.disk_id) == ("b", "boot", "disk")


def test_each_two_mib_has_its_digest_and_the_last_may_be_short(tmp_path: Path) -> None:
    data = os.urandom(2 * CHUNK_BYTES + 10)
    record = make(tmp_path / "b", memory_img=data).files["memory.img"]
    parts = (data[:CHUNK_BYTES], data[CHUNK_BYTES : 2 * CHUNK_BYTES], data[2 * CHUNK_BYTES :])
    assert record.size == len(data)
    assert record.chunks == tuple(hashlib.sha256(part).hexdigest() for part in parts)


def test_holes_have_the_digest_of_the_zeros_that_they_read_as(tmp_path: Path) -> None:
    sparse, full = tmp_path / "sparse", tmp_path / "full"
    with sparse.open("wb") as file:
        file.seek(3 * CHUNK_BYTES)
        file.write(b"data")
        file.truncate(6 * CHUNK_BYTES + 100)
    full.write_bytes(sparse.read_bytes())
    assert sparse.stat().st_blocks < full.stat().st_blocks
    assert manifest.record(sparse) == manifest.record(full)


@pytest.mark.parametrize("at", [0, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 5])
def test_one_flipped_bit_is_found_and_its_place_is_told(tmp_path: Path, at: int) -> None:
    data = bytearray(os.urandom(CHUNK_BYTES + 6))
    made = make(tmp_path / "b", memory_img=bytes(data), state_bin=b"state")
    data[at] ^= 1
    (tmp_path / "b" / "memory.img").write_bytes(data)
    manifest.check_sizes(tmp_path / "b", made)
    with pytest.raises(EnvironmentFault, match=f"chunk {at // CHUNK_BYTES} ") as found:
        manifest.check_chunks(tmp_path / "b", made)
    assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT
    chunk = at // CHUNK_BYTES
    part = data[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES]
    assert found.value.evidence == {
        "bundle": "b",
        "file": "memory.img",
        "chunk": chunk,
        "expected_sha256": made.files["memory.img"].chunks[chunk],
        "seen_sha256": hashlib.sha256(part).hexdigest(),
    }


def test_a_file_filled_where_it_had_a_hole_is_found(tmp_path: Path) -> None:
    made = make(tmp_path / "b", memory_img=bytes(4 * MIB))
    with (tmp_path / "b" / "memory.img").open("r+b") as file:
        file.seek(3 * MIB)
        file.write(b"x")
    with pytest.raises(EnvironmentFault, match="chunk 1 "):
        manifest.check_chunks(tmp_path / "b", made)


@pytest.mark.parametrize("size", [0, 4, 6])
def test_another_size_is_found_without_reading(tmp_path: Path, size: int) -> None:
    made = make(tmp_path / "b", state_bin=b"state")
    os.truncate(tmp_path / "b" / "state.bin", size)
    with pytest.raises(EnvironmentFault, match=f"{size} bytes instead of 5") as found:
        manifest.check_sizes(tmp_path / "b", made)
    assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT
    assert found.value.evidence == {
        "bundle": "b",
        "file": "state.bin",
        "expected_bytes": 5,
        "seen_bytes": size,
    }


def test_a_missing_file_is_found(tmp_path: Path) -> None:
    made = make(tmp_path / "b", state_bin=b"state")
    (tmp_path / "b" / "state.bin").unlink()
    with pytest.raises(EnvironmentFault, match=r"state\.bin: it is missing") as found:
        manifest.check_sizes(tmp_path / "b", made)
    assert found.value.kind is FailureKind.SNAPSHOT_UNAVAILABLE


def test_of_a_large_file_only_the_first_part_is_checked_before_a_fork(tmp_path: Path) -> None:
    directory = tmp_path / "b"
    directory.mkdir()
    with (directory / "memory.img").open("wb") as file:
        file.truncate(40 * MIB)
    made = make(directory, state_bin=b"s" * 3 * MIB)
    whole = replace(
        made, files={**made.files, "memory.img": manifest.record(directory / "memory.img")}
    )
    manifest.check_working_set(directory, whole)
    for at, file_name, found_now in (
        (39 * MIB, "memory.img", False),
        (15 * MIB, "memory.img", True),
        (3 * MIB - 1, "state.bin", True),
    ):
        with (directory / file_name).open("r+b") as file:
            file.seek(at)
            was = file.read(1)
            file.seek(at)
            file.write(bytes([was[0] ^ 1]))
        with pytest.raises(EnvironmentFault):
            manifest.check_chunks(directory, whole)
        if found_now:
            with pytest.raises(EnvironmentFault):
                manifest.check_working_set(directory, whole)
        else:
            manifest.check_working_set(directory, whole)
        with (directory / file_name).open("r+b") as file:
            file.seek(at)
            file.write(was)


def test_no_manifest_means_no_bundle_here(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as found:
        manifest.read(tmp_path)
    assert found.value.kind is FailureKind.SNAPSHOT_UNAVAILABLE


Spoil = Callable[[dict[str, Any]], object]
SPOILS: dict[str, Spoil] = {
    "no shape": lambda raw: raw.pop("shape"),
    "an unknown key in the shape": lambda raw: raw["shape"].update(gpus=1),
    "an unknown accelerator": lambda raw: raw["restore_key"].update(accelerator="xen"),
    "too few digests": lambda raw: raw["files"]["state.bin"].update(chunks=[]),
    "a path for a name": lambda raw: raw["files"].update({"../x": raw["files"]["state.bin"]}),
    "files as a list": lambda raw: raw.update(files=[]),
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_what_cannot_be_read_is_corrupt(tmp_path: Path, spoil: Spoil) -> None:
    make(tmp_path / "b", state_bin=b"state")
    file = tmp_path / "b" / manifest.NAME
    raw = json.loads(file.read_text())
    del raw["sha256"]
    spoil(raw)
    file.write_text(manifest.sealed(raw))
    with pytest.raises(EnvironmentFault) as found:
        manifest.read(tmp_path / "b")
    assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT


def test_a_sound_manifest_of_another_version_is_named(tmp_path: Path) -> None:
    make(tmp_path / "b", state_bin=b"state")
    file = tmp_path / "b" / manifest.NAME
    raw = json.loads(file.read_text())
    later = manifest.VERSION + 1
    file.write_text(manifest.sealed({**_unsealed(raw), "version": later}))
    with pytest.raises(EnvironmentFault, match="rebuild") as found:
        manifest.read(tmp_path / "b")
    assert found.value.kind is FailureKind.SNAPSHOT_UNAVAILABLE
    seen = {"bundle": "b", "reason": "wrong_version", "version": later, "reads": manifest.VERSION}
    assert found.value.evidence == seen
    file.write_text(json.dumps({**raw, "version": later}))  # which no server ever wrote
    with pytest.raises(EnvironmentFault) as found:
        manifest.read(tmp_path / "b")
    assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT


def _unsealed(raw: dict[str, Any]) -> dict[str, Any]:
    return {name: raw[name] for name in raw if name != "sha256"}


def test_no_flipped_bit_makes_a_manifest_say_something_else(tmp_path: Path) -> None:
    made = make(tmp_path / "b", state_bin=b"state", memory_img=b"memory")
    file = tmp_path / "b" / manifest.NAME
    text, read = file.read_bytes(), 0
    for bit in range(0, 8 * len(text), 7):
        spoilt = bytearray(text)
        spoilt[bit // 8] ^= 1 << bit % 8
        file.write_bytes(spoilt)
        try:
            assert manifest.read(tmp_path / "b") == made
            read += 1
        except EnvironmentFault as fault:
            assert fault.kind is FailureKind.SNAPSHOT_CORRUPT  # noqa: PT017
    assert read * 20 < len(text)  # white space between words


def test_half_a_manifest_is_corrupt(tmp_path: Path) -> None:
    make(tmp_path / "b", state_bin=b"state")
    file = tmp_path / "b" / manifest.NAME
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(EnvironmentFault) as found:
        manifest.read(tmp_path / "b")
    assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"version": ' + "[" * 100_000,
        " " * 200_002,
    ],
    ids=["deep", "deep-version", "long"],
)
def test_a_manifest_that_would_cost_more_than_it_says_is_corrupt(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "MOST_BYTES", 200_001)
    make(tmp_path / "b", memory_img=b"m")
    (tmp_path / "b" / manifest.NAME).write_text(text)
    with pytest.raises(EnvironmentFault) as caught:
        manifest.read(tmp_path / "b")
    assert caught.value.kind is FailureKind.SNAPSHOT_CORRUPT


def test_a_size_without_end_is_corrupt(tmp_path: Path) -> None:
    make(tmp_path / "b", memory_img=b"m")
    file = tmp_path / "b" / manifest.NAME
    raw = json.loads(file.read_text())
    raw.pop("sha256")
    raw["files"]["memory.img"]["size"] = float("inf")
    file.write_text(manifest.sealed(raw))
    with pytest.raises(EnvironmentFault) as caught:
        manifest.read(tmp_path / "b")
    assert caught.value.kind is FailureKind.SNAPSHOT_CORRUPT


def test_a_link_that_the_manifest_does_not_name_is_refused_before_anybody_follows_it(
    tmp_path: Path,
) -> None:
    """A fork's overlay and disks are opened by their own names, whether the manifest has them or not."""
    made = make(tmp_path / "b", memory_img=b"m")
    (tmp_path / "b" / "lost+found").mkdir()  # every volume has one
    manifest.check_sizes(tmp_path / "b", made)
    (tmp_path / "b" / "overlay.qcow2").symlink_to("/etc/hostname")
    with pytest.raises(EnvironmentFault, match="it is no plain file") as caught:
        manifest.check_sizes(tmp_path / "b", made)
    assert caught.value.kind is FailureKind.SNAPSHOT_CORRUPT
