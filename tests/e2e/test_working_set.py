"""What real forks are seen to read, and that a fork runs on a bundle of which no more than that is in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra import manifest, working_set
from infra.bundles import LocalBundles
from infra.qemu.disks import private_copy
from tests.e2e.conftest import Factory, Frozen

pytestmark = pytest.mark.machines


def test_what_a_first_fork_reads_is_noticed_and_the_next_is_served_from_it(
    factory: Factory, frozen: Frozen, tmp_path: Path
) -> None:
    bundles = LocalBundles(tmp_path / "bundles")
    directory = bundles.staging("candidate")
    directory.mkdir()
    for file in frozen.bundle.directory.iterdir():
        private_copy(file, directory / file.name)
        (directory / file.name).chmod(0o444)
    bundles.watch("candidate")
    fork(factory, bundles)
    size_bytes = bundles.record("candidate")
    contents = manifest.read(directory)
    known = working_set.read(directory, contents)
    assert known is not None
    assert known.size_bytes == size_bytes
    assert known.files["state.bin"].parts == (
        working_set.Part(0, contents.files["state.bin"].size),
    )
    assert known.files["memory.img"].parts
    assert working_set.forget(directory, contents)
    fork(factory, bundles)
    assert bundles.store("candidate") == bundles.open("candidate")


def fork(factory: Factory, bundles: LocalBundles) -> None:
    name = factory.name()
    bundle = bundles.open("candidate")
    factory.keep(factory.machines.restore(name, bundle, factory.host.deadline()))
    with factory.wire(name) as wire:
        assert wire.wake()["boot_id"] == bundle.boot_id
    factory.machines.kill(name)
