"""Two QEMU builds side by side: what is frozen under one key forks by its own program, and by no other."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from app.domain.machine import Bundle, Fingerprint, RestoreKey
from app.errors import EnvironmentFault, FailureKind
from infra.bundles import LocalBundles
from infra.image.images import LocalImages
from infra.qemu.fingerprint import survey
from infra.qemu.machines import QemuMachines
from infra.qemu.programs import PROGRAM
from tests.e2e.conftest import SHAPE, Frozen, Host
from tests.e2e.kept import PRODUCTS
from tests.e2e.wire import Wire

pytestmark = pytest.mark.machines

BUILD = "99.0.0 (another build)"
MARK = "STARTED_AS=another"


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A host on which a newer build stands before the one that it had."""

    root: Path
    program: str
    machines: QemuMachines
    fingerprint: Fingerprint


@pytest.fixture
def another() -> Iterator[str]:
    """The QEMU of this machine as one that says it is another build, and leaves its mark on what it starts.

    The users of machines must reach it, as they do not reach what pytest keeps.
    """
    real = shutil.which(PROGRAM)
    with tempfile.TemporaryDirectory(prefix="another-qemu-") as folder:
        Path(folder).chmod(0o755)
        program = Path(folder) / PROGRAM
        program.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && exec echo "QEMU emulator version {BUILD}"\n'
            f'{MARK} exec {real} "$@"\n'
        )
        program.chmod(0o755)
        yield str(program)


@pytest.fixture
def upgraded(host: Host, another: str, tmp_path: Path) -> Iterator[Upgraded]:
    made = host_with(host, tmp_path / "upgraded", another, PROGRAM)
    yield made
    end(made.machines)


def test_a_fork_runs_by_the_build_that_it_was_frozen_under(
    upgraded: Upgraded, host: Host, frozen: Frozen, images: LocalImages, tmp_path: Path
) -> None:
    new, old = upgraded.fingerprint.restore_keys
    assert new.qemu_build == BUILD
    assert old == frozen.bundle.restore_key
    bundle = freeze(upgraded, host, frozen, images, LocalBundles(tmp_path / "bundles"))
    assert bundle.restore_key == new
    assert marked(upgraded, host, frozen, bundle)
    assert not marked(upgraded, host, frozen, frozen.bundle)
    refused_by(host.machines(), host, bundle, new)
    only_new = host_with(host, tmp_path / "only", upgraded.program)
    refused_by(only_new.machines, host, frozen.bundle, old)


def test_a_build_that_was_replaced_in_place_is_named_and_the_other_goes_on(
    upgraded: Upgraded, host: Host, frozen: Frozen, images: LocalImages
) -> None:
    new = upgraded.fingerprint.restore_keys[0]
    Path(upgraded.program).write_text("#!/bin/sh\nexit 1\n")
    boot = partial(upgraded.machines.boot, "m", images.boot_image("busybox"), SHAPE)
    for act in (
        lambda: upgraded.machines.prove(new),
        upgraded.machines.prove,
        lambda: boot(host.deadline()),
    ):
        with pytest.raises(EnvironmentFault, match="has been replaced since") as refused:
            act()
        assert refused.value.kind is FailureKind.RESTORE_FAILED
    assert upgraded.machines.known() == ()
    upgraded.machines.restore("of-the-other", frozen.bundle, host.deadline())


def host_with(host: Host, root: Path, *programs: str) -> Upgraded:
    """This machine as a host with these programs."""
    keeper, guest = host.means[0].keeper, PRODUCTS / "guest"
    means, fingerprint = survey(
        "upgraded",
        root / "machines",
        keeper,
        guest / "vmlinuz",
        guest / "initramfs.cpio",
        host.clock,
        programs,
    )
    machines = QemuMachines(root / "machines", means, fingerprint, host.clock)
    return Upgraded(root / "machines", programs[0], machines, fingerprint)


def freeze(
    upgraded: Upgraded, host: Host, frozen: Frozen, images: LocalImages, into: LocalBundles
) -> Bundle:
    upgraded.machines.boot("template", images.boot_image("busybox"), SHAPE, host.deadline())
    with Wire(upgraded.root, "template", frozen.patience_s) as wire:
        assert wire.hear()["verb"] == "HELLO"
        wire.wake("template")
        boot_id = wire.ask("QUIESCE")["boot_id"]
    staged = upgraded.machines.freeze("template", into.staging("of-another"), boot_id)
    return into.store(staged.bundle_id)


def marked(upgraded: Upgraded, host: Host, frozen: Frozen, bundle: Bundle) -> bool:
    """Fork it, pass its barrier, and see whether the other program started it."""
    name = f"of-{bundle.bundle_id}"
    handle = upgraded.machines.restore(name, bundle, host.deadline())
    with Wire(upgraded.root, name, frozen.patience_s) as wire:
        assert wire.wake()["verb"] == "AWAKE"
    return MARK.encode() in Path(f"/proc/{handle.pid}/environ").read_bytes().split(b"\0")


def refused_by(machines: QemuMachines, host: Host, bundle: Bundle, needed: RestoreKey) -> None:
    try:
        with pytest.raises(EnvironmentFault, match=r"needs .*; this host restores ") as refused:
            machines.restore("refused", bundle, host.deadline())
        assert refused.value.kind is FailureKind.SNAPSHOT_UNAVAILABLE
        assert refused.value.evidence["needed"] == str(needed)
        assert str(needed) not in refused.value.evidence["here"]  # type: ignore[operator]
        assert machines.known() == ()
    finally:
        end(machines)


def end(machines: QemuMachines) -> None:
    """Nothing of it is left."""
    for name in machines.known():
        machines.kill(name)
        machines.forget(name)
    machines.close()
