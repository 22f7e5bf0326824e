"""Bundles as folders: stored whole or not, read whole once, and never trusted after a change."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from app.domain.machine import Bundle
from app.errors import BadRequest, EnvironmentFault, FailureKind
from infra import manifest
from infra.bundles import LocalBundles
from tests.unit.test_manifest import make

# More than is read whole before a fork.
LARGE_BYTES = 34 << 20


@pytest.fixture
def bundles(tmp_path: Path) -> LocalBundles:
    return LocalBundles(tmp_path / "bundles")


def staged(bundles: LocalBundles, name: str, state: bytes = b"state") -> Path:
    directory = bundles.staging(name)
    make(directory, memory_img=b"memory", state_bin=state)
    return directory


def stored(bundles: LocalBundles, name: str = "one") -> Bundle:
    staged(bundles, name)
    return bundles.store(name)


def replace_file(file: Path, data: bytes) -> None:
    """Another file of the same name and size."""
    draft = file.with_suffix(".new")
    draft.write_bytes(data)
    draft.replace(file)


def test_a_stored_bundle_is_found_again(bundles: LocalBundles, tmp_path: Path) -> None:
    directory = staged(bundles, "one")
    bundle = bundles.store("one")
    assert bundle.bundle_id == "one"
    assert not directory.exists()
    assert bundles.open("one") == bundle
    assert LocalBundles(tmp_path / "bundles").open("one") == bundle
    assert bundles.mounted() == ("one",)


def test_a_staged_bundle_can_be_forked_from(bundles: LocalBundles) -> None:
    directory = staged(bundles, "candidate")
    assert bundles.open("candidate").directory == directory
    assert bundles.mounted() == ("candidate",)


def test_storing_twice_is_safe(bundles: LocalBundles) -> None:
    assert stored(bundles) == bundles.store("one")


def test_what_was_never_staged_cannot_be_stored(bundles: LocalBundles) -> None:
    with pytest.raises(EnvironmentFault) as found:
        bundles.store("never")
    assert found.value.kind is FailureKind.SNAPSHOT_UNAVAILABLE


def test_a_bundle_with_a_changed_byte_is_not_stored_as_sound(bundles: LocalBundles) -> None:
    directory = staged(bundles, "one")
    (directory / "memory.img").write_bytes(b"memorx")
    with pytest.raises(EnvironmentFault) as found:
        bundles.store("one")
    assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT
    with pytest.raises(EnvironmentFault):
        bundles.open("one")
    assert bundles.mounted() == ()


def test_it_is_read_once_and_not_again_while_nothing_changes(
    bundles: LocalBundles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(bundles)

    def must_not_read(*_: object) -> None:
        raise AssertionError("a fork waits for hashing")

    monkeypatch.setattr(manifest, "check_chunks", must_not_read)
    bundles.open("one")
    LocalBundles(tmp_path / "bundles").open("one")


def test_a_file_that_was_replaced_since_is_read_again(
    bundles: LocalBundles, tmp_path: Path
) -> None:
    replace_file(stored(bundles).memory, b"memorx")
    with pytest.raises(EnvironmentFault) as found:
        LocalBundles(tmp_path / "bundles").open("one")
    assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT


def test_a_manifest_that_says_something_else_is_refused(
    bundles: LocalBundles, tmp_path: Path
) -> None:
    file = stored(bundles).directory / manifest.NAME
    file.write_text(file.read_text().replace('"boot_id": "boot"', '"boot_id": "root"'))
    with pytest.raises(EnvironmentFault, match=r"manifest\.json") as found:
        LocalBundles(tmp_path / "bundles").open("one")
    assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT


# Which is given up first


def test_the_one_that_was_not_used_for_longest_is_first(
    bundles: LocalBundles, tmp_path: Path
) -> None:
    for name in ("one", "two", "three"):
        stored(bundles, name)
    for name in ("two", "one", "three", "two"):
        bundles.open(name)
    assert bundles.mounted() == ("one", "three", "two")


def test_the_order_outlives_the_process_and_costs_a_write_a_second(
    bundles: LocalBundles, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        stored(bundles, name)
    used = tmp_path / "bundles" / "used"
    for name, age_s in (("one", 5), ("two", 10)):
        then_ns = time.time_ns() - age_s * 1_000_000_000
        os.utime(used / name, ns=(then_ns, then_ns))
    assert LocalBundles(tmp_path / "bundles").mounted() == ("two", "one")
    bundles.open("two")
    assert LocalBundles(tmp_path / "bundles").mounted() == ("one", "two")
    noted_ns = (used / "two").stat().st_mtime_ns
    bundles.open("two")
    assert (used / "two").stat().st_mtime_ns == noted_ns
    bundles.delete("two")
    assert [entry.name for entry in used.iterdir()] == ["one"]


def test_the_only_copy_is_not_given_up(bundles: LocalBundles) -> None:
    bundle = stored(bundles)
    assert not bundles.stores_elsewhere
    assert not bundles.evict("one")
    bundles.release()
    assert bundles.open("one") == bundle
    assert bundles.evict("never")


def test_what_is_known_of_its_bytes_can_be_forgotten(
    bundles: LocalBundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = stored(bundles)
    bundles.forget("one")
    assert bundles.mounted() == ()
    read: list[Path] = []
    monkeypatch.setattr(manifest, "check_working_set", lambda at, _: read.append(at))
    assert bundles.open("one") == bundle
    assert read == [bundle.directory]


# What changes behind a fork's back


def large(bundles: LocalBundles) -> Bundle:
    """A stored bundle with more memory than is read before a fork."""
    directory = bundles.staging("large")
    make(directory, memory_img=bytes(LARGE_BYTES), state_bin=b"state")
    return bundles.store("large")


def flip(file: Path, at: int) -> None:
    """One bit; the file's size, name and times stay as they were, but for that of its change."""
    was = file.stat()
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 16]))
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))


def test_after_a_boot_only_the_working_set_is_read_before_a_fork_and_the_rest_later(
    bundles: LocalBundles, tmp_path: Path
) -> None:
    flip(large(bundles).memory, LARGE_BYTES - 1)
    later = LocalBundles(tmp_path / "bundles", boot_id="the next")
    assert later.unread() == ()
    bundle = later.open("large")
    assert later.unread() == ("large",)
    with pytest.raises(EnvironmentFault) as found:
        later.read("large")
    assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT
    assert found.value.evidence["chunk"] == LARGE_BYTES // manifest.CHUNK_BYTES - 1
    assert later.unread() == ()
    assert bundle.memory.exists()
    ((name, refusal),) = later.refused()
    assert (name, refusal.evidence) == ("large", found.value.evidence)
    assert later.mounted() == ()
    with pytest.raises(EnvironmentFault, match="chunk"):
        later.open("large")


def test_a_sound_bundle_is_read_once_a_boot(bundles: LocalBundles, tmp_path: Path) -> None:
    large(bundles)
    assert bundles.unread() == ()
    later = LocalBundles(tmp_path / "bundles", boot_id="the next")
    later.open("large")
    later.read("large")
    assert later.unread() == ()
    other = LocalBundles(tmp_path / "bundles", boot_id="the next")
    other.open("large")
    assert other.unread() == ()


def test_a_bit_that_flips_while_forks_live_makes_it_unread(bundles: LocalBundles) -> None:
    flip(large(bundles).memory, LARGE_BYTES - 1)
    assert bundles.unread() == ("large",)


def test_a_bit_of_the_working_set_stops_the_next_fork(bundles: LocalBundles) -> None:
    flip(large(bundles).state, 2)
    with pytest.raises(EnvironmentFault, match=r"state\.bin: chunk 0"):
        bundles.open("large")
    with pytest.raises(EnvironmentFault, match=r"state\.bin: chunk 0"):
        bundles.open("large")
    assert bundles.mounted() == ()


def test_a_missing_file_is_no_refusal(bundles: LocalBundles) -> None:
    large(bundles).memory.unlink()
    with pytest.raises(EnvironmentFault) as found:
        bundles.open("large")
    assert found.value.kind is FailureKind.SNAPSHOT_UNAVAILABLE
    assert bundles.refused() == ()


def test_a_bundle_that_was_mended_is_taken_again(bundles: LocalBundles, tmp_path: Path) -> None:
    bundle = large(bundles)
    flip(bundle.state, 2)
    with pytest.raises(EnvironmentFault):
        bundles.open("large")
    flip(bundle.state, 2)
    assert bundles.open("large") == bundle
    # Before it is read whole again, too: a background check between the two would end the forks that it has now.
    assert bundles.refused() == ()
    bundles.read("large")
    assert bundles.refused() == ()
    assert bundles.mounted() == ("large",)


def test_a_refusal_outlives_the_process(bundles: LocalBundles, tmp_path: Path) -> None:
    flip(large(bundles).state, 2)
    with pytest.raises(EnvironmentFault):
        bundles.open("large")
    later = LocalBundles(tmp_path / "bundles")
    assert [name for name, _ in later.refused()] == ["large"]
    with pytest.raises(EnvironmentFault):
        later.open("large")
    later.delete("large")
    assert later.refused() == ()


def test_staging_removes_what_an_earlier_build_left(bundles: LocalBundles) -> None:
    directory = staged(bundles, "one")
    assert bundles.staging("one") == directory
    assert not directory.exists()


def test_delete_removes_stored_and_staged_and_may_come_twice(bundles: LocalBundles) -> None:
    stored(bundles)
    staged(bundles, "two")
    for name in ("one", "two", "two", "never"):
        bundles.delete(name)
    assert bundles.mounted() == ()
    with pytest.raises(EnvironmentFault) as found:
        bundles.open("one")
    assert found.value.kind is FailureKind.SNAPSHOT_UNAVAILABLE


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "/etc"])
def test_a_bundle_id_is_no_path(bundles: LocalBundles, name: str) -> None:
    with pytest.raises(BadRequest):
        bundles.staging(name)
    with pytest.raises(BadRequest):
        bundles.open(name)
    with pytest.raises(BadRequest):
        bundles.delete(name)


@pytest.mark.parametrize("name", ["manifest.json", "memory.img", "working-set.json"])
@pytest.mark.parametrize("what", ["link", "pipe", "directory"])
def test_what_is_no_plain_file_is_refused_and_never_followed_or_waited_for(
    bundles: LocalBundles, tmp_path: Path, name: str, what: str
) -> None:
    """A bundle's files come from a disk: a link would have a fork read this host's own files."""
    file = stored(bundles).directory / name
    elsewhere = tmp_path / "secret"
    if file.exists():
        file.rename(elsewhere)
    else:
        elsewhere.write_bytes(b"{}")
    match what:
        case "link":
            file.symlink_to(elsewhere)
        case "pipe":
            os.mkfifo(file)
        case _:
            file.mkdir()
    with pytest.raises(EnvironmentFault, match=f"{name}: it is no plain file") as caught:
        bundles.open("one")
    assert caught.value.kind is FailureKind.SNAPSHOT_CORRUPT
    assert bundles.mounted() == ()


def test_a_disk_that_does_not_give_its_bytes_is_a_fault_and_stops_nobody(
    bundles: LocalBundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    stored(bundles)
    for mark in bundles._checked.iterdir():
        mark.unlink()
    fresh = LocalBundles(bundles._stored.parent)
    with monkeypatch.context() as failing:
        failing.setattr(os, "pread", broken)
        for act in (fresh.open, fresh.read):
            with pytest.raises(EnvironmentFault, match="one cannot be read") as caught:
                act("one")
            assert caught.value.kind is FailureKind.SNAPSHOT_UNAVAILABLE
            assert caught.value.evidence["reason"] == "disk_failed"
    assert fresh.open("one").bundle_id == "one"
    assert fresh.refused() == ()
    with monkeypatch.context() as failing:
        failing.setattr(Path, "glob", broken)
        assert fresh.unread() == ("one",)
