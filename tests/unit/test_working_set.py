"""What the first forks read of a bundle: noticed, kept beside it, read first, and believed no more than the disk."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.errors import EnvironmentFault, FailureKind
from infra import manifest, page_cache, working_set
from infra.bundles import LocalBundles
from infra.manifest import Manifest
from infra.working_set import Part, PartsOfFile, WorkingSet
from tests.unit.test_manifest import make

PAGE = page_cache.PAGE_BYTES
MIB = 1 << 20
MEMORY_BYTES = 4 * MIB
FAR = 16 * PAGE  # as much as is read with what lies on both sides of it


@pytest.fixture
def bundle(tmp_path: Path) -> tuple[Path, Manifest]:
    directory = tmp_path / "bundle"
    return directory, make(directory, memory_img=os.urandom(MEMORY_BYTES), state_bin=b"state")


def fork_reads(file: Path, *parts: tuple[int, int]) -> None:
    """As a fork does, on a host that reads nothing ahead."""
    with file.open("rb", buffering=0) as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for offset, length in parts:
            os.pread(opened.fileno(), length, offset)


def recorded(directory: Path, made: Manifest, *parts: tuple[int, int]) -> WorkingSet:
    assert working_set.forget(directory, made)
    fork_reads(directory / "memory.img", *parts)
    found = working_set.record(directory, made)
    working_set.write(directory, found)
    return found


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 16
    file.write_bytes(data)


# What is noticed


def test_it_is_what_was_read_and_the_small_files_whole(bundle: tuple[Path, Manifest]) -> None:
    directory, made = bundle
    found = recorded(directory, made, (MIB, PAGE), (2 * MIB, 3 * PAGE), (MEMORY_BYTES - 1, 1))
    assert found.files["memory.img"].parts == (
        Part(MIB, PAGE),
        Part(2 * MIB, 3 * PAGE),
        Part(MEMORY_BYTES - PAGE, PAGE),
    )
    assert found.files["state.bin"].parts == (Part(0, len(b"state")),)
    assert found.size_bytes == 5 * PAGE + len(b"state")
    assert working_set.read(directory, made) == found
    working_set.check(directory, found)


def test_what_lies_between_two_parts_is_read_with_them_if_it_is_little(
    bundle: tuple[Path, Manifest],
) -> None:
    directory, made = bundle
    near, far = (0, PAGE), (PAGE + FAR, PAGE)
    farther = (2 * PAGE + 2 * FAR + PAGE, PAGE)
    found = recorded(directory, made, near, far, farther)
    assert found.files["memory.img"].parts == (Part(0, 2 * PAGE + FAR), Part(*farther))


def test_so_many_parts_that_few_are_better_become_few(
    bundle: tuple[Path, Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_set, "_MOST_PARTS", 2)
    directory, made = bundle
    apart = [(number * 20 * PAGE, PAGE) for number in range(8)]
    (part,) = recorded(directory, made, *apart, (0, PAGE)).files["memory.img"].parts
    assert part == Part(0, 7 * 20 * PAGE + PAGE)


def test_holes_are_no_part_of_it(tmp_path: Path) -> None:
    directory = tmp_path / "bundle"
    made = make(directory, state_bin=b"state")
    with (directory / "memory.img").open("wb") as file:
        file.seek(2 * MIB)
        file.write(os.urandom(MIB))
        file.truncate(8 * MIB)
    made = Manifest(
        *(made.shape, made.restore_key, made.boot_id, made.disk_id, made.taken_wall_ns),
        files={**made.files, "memory.img": manifest.record(directory / "memory.img")},
    )
    found = recorded(directory, made, (0, PAGE), (2 * MIB - PAGE, 2 * PAGE), (7 * MIB, PAGE))
    assert found.files["memory.img"].parts == (Part(2 * MIB, PAGE),)


def test_where_files_live_in_memory_nothing_can_be_noticed() -> None:
    directory = Path("/dev/shm") / f"promigence-test-{os.getpid()}"
    try:
        made = make(directory, memory_img=os.urandom(MIB))
        assert not working_set.forget(directory, made)
    finally:
        shutil.rmtree(directory)


# What is kept, and believed


def test_none_is_no_fault(bundle: tuple[Path, Manifest]) -> None:
    assert working_set.read(*bundle) is None


Spoil = Callable[[dict[str, Any]], object]


def parts(*pairs: object) -> Spoil:
    return lambda raw: raw["files"]["memory.img"].update(parts=list(pairs))


SPOILS: dict[str, Spoil] = {
    "a file that the bundle has not": lambda raw: raw["files"].update(
        {"../../etc/shadow": raw["files"]["state.bin"]}
    ),
    "without the device state": lambda raw: raw["files"].pop("state.bin"),
    "a part of the device state": lambda raw: raw["files"]["state.bin"].update(parts=[[0, 4]]),
    "files as a list": lambda raw: raw.update(files=[]),
    "no version": lambda raw: raw.pop("version"),
    "beyond the file's end": parts([MEMORY_BYTES - PAGE, PAGE + 1]),
    "nothing of it": parts([0, 0]),
    "before the file's start": parts([-PAGE, 2 * PAGE]),
    "backwards": parts([PAGE, PAGE], [0, PAGE]),
    "twice": parts([0, PAGE], [0, PAGE]),
    "words": parts(["a", "b"]),
    "a triple": parts([0, 1, 2]),
    "endless": parts([0, 1e999]),
    "too many": parts(*([2 * number, 1] for number in range(10_000))),
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_what_the_manifest_does_not_bear_out_is_corrupt(
    bundle: tuple[Path, Manifest], spoil: Spoil
) -> None:
    directory, made = bundle
    recorded(directory, made, (0, PAGE))
    file = directory / working_set.NAME
    raw = json.loads(file.read_text())
    del raw["sha256"]
    spoil(raw)
    file.write_text(manifest.sealed(raw))
    refused(directory, made, working_set.NAME)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "[" * 100_000, '{"version": 1}', " " * (5 * MIB)]
)
def test_any_other_text_is_corrupt(bundle: tuple[Path, Manifest], text: str) -> None:
    directory, made = bundle
    (directory / working_set.NAME).write_text(text)
    refused(directory, made, working_set.NAME)


def refused(directory: Path, made: Manifest, file: str) -> None:
    with pytest.raises(EnvironmentFault) as found:
        working_set.read(directory, made)
    assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT
    assert found.value.evidence["file"] == file


def test_no_flipped_bit_makes_it_say_something_else(bundle: tuple[Path, Manifest]) -> None:
    directory, made = bundle
    found = recorded(directory, made, (0, PAGE))
    file = directory / working_set.NAME
    text, read = file.read_bytes(), 0
    for bit in range(0, 8 * len(text), 7):
        spoilt = bytearray(text)
        spoilt[bit // 8] ^= 1 << bit % 8
        file.write_bytes(spoilt)
        try:
            assert working_set.read(directory, made) == found
            read += 1
        except EnvironmentFault as fault:
            assert fault.kind is FailureKind.SNAPSHOT_CORRUPT  # noqa: PT017
    assert read * 10 < len(text)  # white space between words


def test_one_of_a_later_release_is_none(bundle: tuple[Path, Manifest]) -> None:
    directory, made = bundle
    later = manifest.sealed({"version": 2, "pages": "in some other form"})
    (directory / working_set.NAME).write_text(later)
    assert working_set.read(directory, made) is None


def test_it_is_kept_whole_or_not_at_all(
    bundle: tuple[Path, Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, _ = bundle

    def full(file: Path, _text: str) -> None:
        file.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    before = sorted(directory.iterdir())
    with pytest.raises(OSError, match="No space"):
        working_set.write(directory, WorkingSet({"state.bin": PartsOfFile((Part(0, 5),), "")}))
    assert sorted(directory.iterdir()) == before


# What changes


def test_a_change_inside_is_found_and_one_outside_is_not_read(
    bundle: tuple[Path, Manifest],
) -> None:
    directory, made = bundle
    found = recorded(directory, made, (MIB, PAGE))
    flip(directory / "memory.img", MIB - 1)
    working_set.check(directory, found)
    flip(directory / "memory.img", MIB)
    with pytest.raises(EnvironmentFault) as fault:
        working_set.check(directory, found)
    assert fault.value.kind is FailureKind.SNAPSHOT_CORRUPT
    assert fault.value.evidence["file"] == "memory.img"


def test_only_what_was_recorded_is_brought_in(bundle: tuple[Path, Manifest]) -> None:
    directory, made = bundle
    found = recorded(directory, made, (MIB, 5 * PAGE), (3 * MIB, PAGE))
    assert working_set.forget(directory, made)
    working_set.check(directory, found)
    assert cached(directory / "memory.img") == [(MIB, 5 * PAGE), (3 * MIB, PAGE)]


def cached(file: Path) -> list[tuple[int, int]]:
    with file.open("rb", buffering=0) as opened:
        return list(page_cache.resident(opened.fileno()))


# From a build to another host


def test_between_watch_and_record_only_forks_read(tmp_path: Path) -> None:
    bundles = LocalBundles(tmp_path / "bundles", "boot")
    directory = bundles.staging("one")
    make(directory, memory_img=os.urandom(MEMORY_BYTES), state_bin=b"state")
    bundles.watch("one")
    another_process = LocalBundles(tmp_path / "bundles", "boot")
    for each in (bundles, another_process):
        assert each.open("one").directory == directory
        assert each.unread() == ()
    assert cached(directory / "memory.img") == []
    fork_reads(directory / "memory.img", (2 * MIB, PAGE))
    size_bytes = another_process.record("one")
    assert size_bytes == PAGE + len(b"state")
    assert bundles.record("one") == size_bytes
    assert bundles.unread() == ("one",)
    bundles.store("one")
    assert bundles.record("one") == size_bytes
    assert bundles.unread() == ()


@pytest.mark.parametrize(("at", "seen_at_once"), [(2 * MIB, True), (MIB, False)])
def test_a_mount_checks_it_first_and_the_rest_later(
    tmp_path: Path, at: int, *, seen_at_once: bool
) -> None:
    bundles = LocalBundles(tmp_path / "bundles")
    make(bundles.staging("one"), memory_img=os.urandom(MEMORY_BYTES), state_bin=b"state")
    bundles.watch("one")
    fork_reads(tmp_path / "bundles" / "staged" / "one" / "memory.img", (2 * MIB, PAGE))
    bundles.record("one")
    elsewhere = LocalBundles(tmp_path / "elsewhere")
    copy = tmp_path / "elsewhere" / "stored" / "one"
    shutil.copytree(bundles.store("one").directory, copy)
    flip(copy / "memory.img", at)
    if not seen_at_once:
        elsewhere.mount("one")
    with pytest.raises(EnvironmentFault) as found:
        (elsewhere.mount if seen_at_once else elsewhere.read)("one")
    assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT
    assert elsewhere.mounted() == ()


def test_what_cannot_be_noticed_costs_no_build(tmp_path: Path) -> None:
    bundles = LocalBundles(tmp_path / "bundles")
    bundles.watch("never")
    assert bundles.record("never") == 0
    make(bundles.staging("one"), state_bin=b"state")
    assert bundles.record("one") == 0
    bundles.watch("one")
    (tmp_path / "bundles" / "staged" / "one" / "state.bin").write_bytes(b"other")
    assert bundles.record("one") == 0
    bundles.delete("one")
    assert list((tmp_path / "bundles" / "watched").iterdir()) == []
