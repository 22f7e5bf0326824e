"""Machines by QEMU: what a template, a freeze, a fork and an end promise, on real ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.machine import Accelerator, Bundle, Deadline, Shape
from app.errors import EnvironmentFault, FailureKind
from infra import manifest
from infra.bundles import LocalBundles
from infra.image.images import LocalImages
from infra.qemu.disks import DISK_ID_BYTES, DISK_ID_OFFSET
from infra.qemu.fingerprint import TCG_CPU
from infra.qemu.home import Home
from infra.qemu.priority import STEP
from infra.qemu.probe import Trial, boots
from tests.e2e.conftest import SHAPE, Factory, Frozen, Host
from tests.e2e.kept import SECOND_NS
from tests.e2e.processes import sockets, status_of

pytestmark = pytest.mark.machines


# The host


def test_the_probe_that_judges_kvm_boots_our_guest_where_it_can(
    host: Host, images: LocalImages
) -> None:
    image, qemu = images.boot_image("busybox"), host.means[0].hypervisor
    trial = Trial(qemu.program, qemu.key.machine_type, image.kernel, image.initramfs)
    assert boots(trial, Accelerator.TCG, TCG_CPU, within_s=60.0) is None


def test_the_fingerprint_says_what_runs_here_and_why(host: Host) -> None:
    seen = host.fingerprint
    (key,) = seen.restore_keys
    assert key.accelerator is seen.accelerator
    assert key.machine_type.startswith("pc-q35-")
    assert seen.accelerator_reason
    assert seen.boot_id == host.clock.boot_id()
    assert seen.memory_mib > SHAPE.memory_mib
    assert (host.means[0].first_uid is None) == any("root" in missing for missing in seen.missing)


# A frozen machine


def test_a_bundle_is_read_only_and_says_all_that_a_fork_needs(frozen: Frozen, host: Host) -> None:
    bundle = frozen.bundle
    said = manifest.read(bundle.directory)
    assert said.bundle(bundle.directory) == bundle
    assert said.shape == SHAPE
    assert (bundle.restore_key,) == host.fingerprint.restore_keys
    for name in said.files:
        assert (bundle.directory / name).stat().st_mode & 0o777 == 0o444
    assert said.files["memory.img"].size == SHAPE.memory_mib << 20
    assert said.files["root.img"].size == SHAPE.disk_gib << 30


def test_a_disk_says_its_id_itself(frozen: Frozen, images: LocalImages) -> None:
    assert recorded_id(frozen.bundle.root_disk) == frozen.bundle.disk_id.encode()
    original = images.boot_image("busybox").root_disk
    assert recorded_id(original) != frozen.bundle.disk_id.encode()


def test_a_template_that_does_not_fit_is_refused_and_leaves_nothing(
    factory: Factory, images: LocalImages
) -> None:
    name, image = factory.name(), images.boot_image("busybox")
    with pytest.raises(EnvironmentFault, match="the shape allows 0 MiB") as refused:
        factory.machines.boot(name, image, Shape(1, 128, 0), factory.host.deadline())
    assert refused.value.kind is FailureKind.RESTORE_FAILED
    assert factory.machines.known() == ()


def test_a_missing_image_is_told(factory: Factory, images: LocalImages, tmp_path: Path) -> None:
    image = replace(images.boot_image("busybox"), root_disk=tmp_path / "gone.img")
    with pytest.raises(EnvironmentFault, match=r"gone\.img is missing") as refused:
        factory.machines.boot(factory.name(), image, SHAPE, factory.host.deadline())
    assert refused.value.kind is FailureKind.SNAPSHOT_UNAVAILABLE
    assert factory.machines.known() == ()


def test_what_is_no_kernel_is_told_with_the_hypervisor_s_words(
    factory: Factory, images: LocalImages
) -> None:
    image = images.boot_image("busybox")
    image = replace(image, kernel=image.tools_disk)
    with pytest.raises(EnvironmentFault) as refused:
        factory.machines.boot(factory.name(), image, SHAPE, factory.host.deadline())
    assert refused.value.kind is FailureKind.RESTORE_FAILED
    assert "qemu" in str(refused.value.evidence["hypervisor_log"])
    assert factory.machines.known() == ()


def test_only_a_template_can_be_frozen(factory: Factory, bundles: LocalBundles) -> None:
    fork = factory.fork()
    with pytest.raises(EnvironmentFault) as refused:
        factory.machines.freeze(fork.name, bundles.staging("no"), "boot")
    assert refused.value.kind is FailureKind.GUEST_LOST


# A fork


def test_a_fork_is_the_frozen_guest_and_not_a_booted_one(factory: Factory, frozen: Frozen) -> None:
    fork = factory.fork()
    with factory.wire(fork.name) as wire:
        awake = wire.wake("one-of-many")
    assert awake["boot_id"] == frozen.bundle.boot_id
    assert awake["hostname"] == "one-of-many"


def test_forks_write_neither_memory_nor_disk_of_their_bundle(
    factory: Factory, frozen: Frozen
) -> None:
    """Each one changes memory at once, and the root disk when its clock and identity are set."""
    samples = set()
    for _ in range(3):
        fork = factory.fork()
        with factory.wire(fork.name) as wire:
            samples.add(wire.wake()["sample"])
        factory.machines.kill(fork.name)
    assert len(samples) == 3
    manifest.check_chunks(frozen.bundle.directory, manifest.read(frozen.bundle.directory))


def test_forks_are_restored_side_by_side(factory: Factory) -> None:
    with ThreadPoolExecutor(4) as pool:
        forks = list(pool.map(lambda _: factory.fork(), range(8)))
    assert {handle.name for handle in factory.machines.live()} == {fork.name for fork in forks}
    samples = set()
    for fork in forks:
        with factory.wire(fork.name) as wire:
            samples.add(wire.wake()["sample"])
    assert len(samples) == len(forks)


def test_a_fork_is_restored_below_a_path_longer_than_a_socket_s_address(
    host: Host, frozen: Frozen, tmp_path: Path
) -> None:
    deep = replace(host, root=tmp_path / ("deep" * 20) / ("deeper" * 10) / "machines")
    machines = deep.machines()
    factory = Factory(deep, machines, frozen)
    try:
        fork = factory.fork()
        with factory.wire(fork.name) as wire:
            assert wire.wake()["boot_id"] == frozen.bundle.boot_id
        factory.end()
    finally:
        machines.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a machine a user of its own")
def test_qemu_is_nobody_in_particular_and_cannot_call_what_it_does_not_need(
    factory: Factory,
) -> None:
    one, other = factory.fork(), factory.fork()
    statuses = [status_of(fork.pid) for fork in (one, other)]
    assert len({status["Uid"] for status in statuses}) == 2
    for status in statuses:
        assert min(map(int, status["Uid"].split())) >= 2_000_000_000
        assert status["Seccomp"] == "2"
        assert status["NoNewPrivs"] == "1"
        assert status["CapEff"] == "0" * 16
    open_sockets = sockets(one.pid)
    # Its monitor and two ports, each with its host's end connected or not: nothing that leads out.
    assert 3 <= open_sockets.pop("unix") <= 6
    assert set(open_sockets.values()) == {0}
    home = Home(factory.host.root / one.name)
    assert home.directory.stat().st_uid == 0
    assert home.directory.stat().st_mode & 0o777 == 0o700
    assert Path(f"/proc/{one.pid}/environ").read_bytes() == b""


def test_a_machine_that_runs_stands_back_and_its_keeper_does_not(factory: Factory) -> None:
    fork = factory.fork()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    threads = [int(entry.name) for entry in Path(f"/proc/{fork.pid}/task").iterdir()]
    assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads} == {own + STEP}
    assert os.getpriority(os.PRIO_PROCESS, fork.keeper_pid) == own
    group = Path(f"/proc/{fork.pid}/autogroup")
    if group.exists():
        assert group.read_text().endswith(f" nice {STEP}\n")
        assert Path(f"/proc/{fork.keeper_pid}/autogroup").read_text().endswith(" nice 0\n")


def test_a_machine_leaves_no_descriptor_in_the_worker(factory: Factory) -> None:
    factory.machines.kill(factory.fork().name)
    before = open_descriptors()
    for _ in range(3):
        factory.machines.kill(factory.fork().name)
    assert open_descriptors() <= before


HARMS: dict[str, tuple[Callable[[Bundle], object], FailureKind]] = {
    "state cut": (lambda bundle: cut(bundle.state), FailureKind.SNAPSHOT_CORRUPT),
    "memory cut": (lambda bundle: cut(bundle.memory), FailureKind.SNAPSHOT_CORRUPT),
    "no disk": (lambda bundle: bundle.root_disk.unlink(), FailureKind.SNAPSHOT_UNAVAILABLE),
    "no manifest": (
        lambda bundle: (bundle.directory / manifest.NAME).unlink(),
        FailureKind.SNAPSHOT_UNAVAILABLE,
    ),
    "no JSON": (
        lambda bundle: (bundle.directory / manifest.NAME).write_text("{"),
        FailureKind.SNAPSHOT_CORRUPT,
    ),
}


@pytest.mark.parametrize(("harm", "kind"), HARMS.values(), ids=HARMS)
def test_a_harmed_bundle_is_never_forked(
    factory: Factory,
    frozen: Frozen,
    tmp_path: Path,
    harm: Callable[[Bundle], object],
    kind: FailureKind,
) -> None:
    bundle = copy_of(frozen.bundle, tmp_path)
    harm(bundle)
    with pytest.raises(EnvironmentFault) as refused:
        factory.machines.restore(factory.name(), bundle, factory.host.deadline())
    assert refused.value.kind is kind
    assert factory.machines.known() == ()


def test_a_bundle_that_went_away_is_unavailable_also_after_forks_of_it(
    factory: Factory, frozen: Frozen, tmp_path: Path
) -> None:
    bundle = copy_of(frozen.bundle, tmp_path)
    factory.keep(factory.machines.restore(factory.name(), bundle, factory.host.deadline()))
    shutil.rmtree(bundle.directory)
    with pytest.raises(EnvironmentFault) as refused:
        factory.machines.restore(factory.name(), bundle, factory.host.deadline())
    assert refused.value.kind is FailureKind.SNAPSHOT_UNAVAILABLE


def test_a_state_that_qemu_refuses_leaves_nothing_and_tells_why(
    factory: Factory, frozen: Frozen, tmp_path: Path
) -> None:
    bundle = copy_of(frozen.bundle, tmp_path)
    bundle.state.chmod(0o644)
    with bundle.state.open("r+b") as state:
        state.write(b"no migration stream")
    with pytest.raises(EnvironmentFault) as refused:
        factory.machines.restore(factory.name(), bundle, factory.host.deadline())
    assert refused.value.kind is FailureKind.RESTORE_FAILED
    assert "migration" in str(refused.value.evidence["hypervisor_log"])
    assert factory.machines.known() == ()


def test_another_host_s_bundle_is_unavailable_here(factory: Factory, frozen: Frozen) -> None:
    said = manifest.read(frozen.bundle.directory)
    foreign = replace(said.restore_key, cpu_model="Nehalem-v1")
    factory.machines._manifests[frozen.bundle.directory] = replace(said, restore_key=foreign)
    with pytest.raises(EnvironmentFault, match=r"needs .*Nehalem-v1") as refused:
        factory.fork()
    assert refused.value.kind is FailureKind.SNAPSHOT_UNAVAILABLE


def test_nothing_starts_when_its_time_to_start_has_passed(factory: Factory, frozen: Frozen) -> None:
    late = Deadline(factory.host.clock.boot_ns() + SECOND_NS * 60, 1)
    with pytest.raises(EnvironmentFault, match="time to start it passed") as refused:
        factory.machines.restore(factory.name(), frozen.bundle, late)
    assert refused.value.kind is FailureKind.RESTORE_FAILED
    assert factory.machines.known() == ()


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def recorded_id(disk: Path) -> bytes:
    with disk.open("rb") as file:
        file.seek(DISK_ID_OFFSET)
        return file.read(DISK_ID_BYTES)


def copy_of(bundle: Bundle, into: Path) -> Bundle:
    """Its large files are links to the bundle's, so only those that a test writes to are changed by it."""
    directory = into / "copy"
    directory.mkdir()
    for file in bundle.directory.iterdir():
        if file.name in ("state.bin", manifest.NAME):
            shutil.copy(file, directory / file.name)
        else:
            (directory / file.name).hardlink_to(file)
    return replace(bundle, directory=directory)


def cut(file: Path) -> None:
    """One byte shorter; a link is replaced by an empty file, so that what it points to stays whole."""
    if file.stat().st_nlink > 1:
        size = file.stat().st_size
        file.unlink()
        file.touch()
        os.truncate(file, size - 1)
    else:
        file.chmod(0o644)
        os.truncate(file, file.stat().st_size - 1)
