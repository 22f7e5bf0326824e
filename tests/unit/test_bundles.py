"""Bundles as folders: stored whole or not, read whole once, and never trusted after a change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.domain.machine import Bundle
from app.errors import BadRequest, EnvironmentFault, FailureKind
from infra import manifest
from infra.bundles import LocalBundles
from tests.unit.test_manifest import make


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


def test_a_changed_manifest_is_read_again(bundles: LocalBundles, tmp_path: Path) -> None:
    file = stored(bundles).directory / manifest.NAME
    file.write_text(file.read_text().replace('"boot_id": "boot"', '"boot_id": "root"'))
    os.utime(file, ns=(1, 1))
    reopened = LocalBundles(tmp_path / "bundles").open("one")
    assert reopened.boot_id == "root"


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
