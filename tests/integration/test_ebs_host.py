"""Bundles on EBS as the kernel sees them: loop devices for volumes, real ext4, real mounts, the cloud in memory."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.cloud import Volume
from app.errors import EnvironmentFault
from drills.rehearsal import storage
from infra.bundles import LocalBundles
from infra.clock import HostClock
from infra.ebs import Device, EbsBundles, Ext4Disks
from infra.ebs.disks import MOUNTS
from infra.ebs.storing import identity_of
from infra.fakes.account import Delays
from infra.fakes.cloud import FakeCloud
from infra.store import Stores, create_store
from tests.integration.volumes import needs_volumes
from tests.unit.test_manifest import make

pytestmark = needs_volumes

HOSTS, ZONE = ("i-1", "i-2"), "fake-1a"
MIB = 1 << 20
BUNDLE = "build_1"
AT_ONCE = Delays(0.0, 0.0, 0.0, 0.0, 0.0)


class LoopPlane:
    """What the cloud does with bytes, done by the rehearsal's storage."""

    def __init__(self, root: Path, made: storage.Storage) -> None:
        self.root = root
        self._storage = made

    def made(self, volume: Volume) -> None:
        self._storage.create(volume.volume_id, volume.size_gib, volume.snapshot_id)

    def attached(self, volume_id: str, instance_id: str, device: str) -> None:
        self._storage.attach(volume_id, self.root / instance_id / "by-id")

    def detached(self, volume_id: str, instance_id: str) -> bool:
        try:
            self._storage.detach(volume_id, self.root / instance_id / "by-id")
        except storage.StorageBusy:
            return False
        return True

    def snapshotted(self, snapshot_id: str, volume_id: str) -> None:
        self._storage.snapshot(volume_id, snapshot_id)

    def deleted(self, cloud_id: str) -> None:
        self._storage.delete(cloud_id)
        self._storage.delete_snapshot(cloud_id)


class Hosts:
    """Two of them, with the rows and the account that they share."""

    def __init__(self, root: Path, made: storage.Storage, store: Stores) -> None:
        self.root = root
        self.storage = made
        self.store = store
        self.clock = HostClock()
        plane = LoopPlane(root, made)
        zones = dict.fromkeys(HOSTS, ZONE)
        self.cloud = FakeCloud(self.clock, zones, plane=plane, delays=AT_ONCE)

    def disks(self, host: str) -> Ext4Disks:
        return Ext4Disks(self.root / host / "by-id")

    def process(self, host: str) -> EbsBundles:
        folder = self.root / host / "bundles"
        return EbsBundles(
            folder,
            LocalBundles(folder, self.clock.boot_id()),
            self.cloud,
            self.store.resources,
            self.disks(host),
            self.clock,
            host_id=host,
            zone=lambda: ZONE,
        )

    def stage(self) -> bytes:
        """A bundle of 6 MiB that seems to be one of 70; returns its memory."""
        directory = self.process("i-1").staging(BUNDLE)
        data = os.urandom(5 * MIB)
        memory = bytes(4 * MIB) + data + bytes(60 * MIB)
        make(directory, memory_img=memory, state_bin=os.urandom(MIB))
        with (directory / "memory.img").open("wb") as file:
            file.seek(4 * MIB)
            file.write(data)
            file.truncate(len(memory))
        (directory / "memory.img").chmod(0o444)
        return memory

    def mounts(self) -> list[str]:
        lines = MOUNTS.read_text().splitlines()
        return [line for line in lines if f"{self.root}/i-" in line]

    def check_nothing_left(self) -> None:
        assert self.mounts() == []
        assert self.storage.attached() == {}
        assert self.storage.volumes() == self.storage.snapshots() == frozenset()
        assert self.store.resources.living() == ()
        for host in HOSTS:
            assert list((self.root / host / "bundles").glob("*/build_*")) == []


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    store = create_store(f"sqlite:///{tmp_path}/store.db")
    store.migrate()
    with storage.opened(tmp_path / "zone") as made:
        hosts = Hosts(tmp_path, made, store)
        yield hosts
        for host in HOSTS:
            hosts.process(host).delete(BUNDLE)
        hosts.check_nothing_left()
    store.close()


def test_a_bundle_goes_to_a_snapshot_and_comes_back_on_another_host(hosts: Hosts) -> None:
    memory = hosts.stage()
    stored = hosts.process("i-1").store(BUNDLE)
    assert stored.memory.read_bytes() == memory
    assert not (hosts.root / "i-1" / "bundles" / "staged" / BUNDLE).exists()
    there = hosts.process("i-2")
    there.mount(BUNDLE)
    bundle = there.open(BUNDLE)
    assert bundle.directory == hosts.root / "i-2" / "bundles" / "stored" / BUNDLE
    assert bundle.memory.read_bytes() == memory
    assert bundle.memory.stat().st_blocks * 512 < 6 * MIB
    assert bundle.memory.stat().st_mode & 0o777 == 0o444
    there.read(BUNDLE)
    assert there.unread() == ()
    (snapshot,) = hosts.storage.snapshots()
    assert len(hosts.storage.volumes()) == 2
    assert snapshot == hosts.store.resources.of_bundle(BUNDLE)[0].cloud_id


def test_what_is_mounted_is_never_written_and_nothing_on_it_acts(hosts: Hosts) -> None:
    hosts.stage()
    bundle = hosts.process("i-1").store(BUNDLE)
    with pytest.raises(OSError, match="Read-only") as found:
        (bundle.directory / "new").touch()
    assert found.value.errno == errno.EROFS
    (mount,) = hosts.mounts()
    options = mount.split()[5].split(",")
    assert {"ro", "nosuid", "nodev", "noexec", "noatime"} <= set(options)


def test_a_directory_may_have_another_name_than_the_kernels(hosts: Hosts) -> None:
    (hosts.root / "i-1-really").mkdir()
    (hosts.root / "i-1").symlink_to(hosts.root / "i-1-really")
    hosts.stage()
    bundles = hosts.process("i-1")
    bundles.store(BUNDLE)
    assert bundles.mounted() == (BUNDLE,)
    assert bundles.evict(BUNDLE)
    assert hosts.mounts() == []


def test_a_file_that_is_open_keeps_its_bundle_here(hosts: Hosts) -> None:
    hosts.stage()
    bundles = hosts.process("i-1")
    with bundles.store(BUNDLE).memory.open("rb"):
        assert not bundles.evict(BUNDLE)
        assert bundles.mounted() == (BUNDLE,)
    assert bundles.evict(BUNDLE)
    assert bundles.mounted() == ()
    assert hosts.mounts() == []
    assert hosts.storage.attached() == {}
    assert hosts.storage.volumes() == frozenset()
    bundles.mount(BUNDLE)
    assert bundles.mounted() == (BUNDLE,)


def test_a_process_that_died_while_it_wrote_leaves_a_mount_that_the_next_one_takes_away(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = hosts.stage()

    class Killed(BaseException):
        pass

    def killed(source: Path, target: Path) -> None:
        shutil.copy(source / "state.bin", target)
        # What a process that is gone does not do.
        monkeypatch.setattr(Ext4Disks, "unmount", lambda *_: True)
        raise Killed

    monkeypatch.setattr("infra.ebs.copying.copy", killed)
    with pytest.raises(Killed):
        hosts.process("i-1").store(BUNDLE)
    monkeypatch.undo()
    (mount,) = hosts.mounts()
    assert f"bundles/writing/{BUNDLE}" in mount
    assert hosts.process("i-1").store(BUNDLE).memory.read_bytes() == memory
    assert len(hosts.mounts()) == 1


def test_a_device_says_whose_filesystem_it_has(hosts: Hosts) -> None:
    disks = hosts.disks("i-1")
    device = loop(hosts, "vol-0abc")
    assert device.size_bytes == 1 << 30
    assert disks.is_blank(device)
    assert disks.identity(device) is None
    disks.make(device, identity_of(BUNDLE))
    assert not disks.is_blank(device)
    assert disks.identity(device) == identity_of(BUNDLE)
    subprocess.run(["e2fsck", "-f", "-n", str(device.path)], check=True, capture_output=True)
    assert disks.find("vol-0abd") is None
    hosts.storage.detach("vol-0abc", hosts.root / "i-1" / "by-id")
    assert disks.find("vol-0abc") is None
    hosts.storage.delete("vol-0abc")


def test_what_is_no_filesystem_is_not_mounted_and_its_mount_point_is_gone(hosts: Hosts) -> None:
    device, point = loop(hosts, "vol-0abc"), hosts.root / "i-1" / "bundles" / "stored" / "none"
    with pytest.raises(EnvironmentFault, match="mount failed") as found:
        hosts.disks("i-1").mount(device, point, writable=False)
    assert found.value.evidence["reason"] == "disk_failed"
    assert "mount: " in str(found.value.evidence["output"])
    assert not point.exists()
    hosts.storage.detach("vol-0abc", hosts.root / "i-1" / "by-id")
    hosts.storage.delete("vol-0abc")


def loop(hosts: Hosts, volume_id: str) -> Device:
    """An attached volume that the cloud knows nothing of."""
    hosts.storage.create(volume_id, 1, None)
    hosts.storage.attach(volume_id, hosts.root / "i-1" / "by-id")
    device = hosts.disks("i-1").find(volume_id)
    assert device is not None
    return device
