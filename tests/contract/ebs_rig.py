"""A zone without devices: the cloud in memory, folders for volumes, links for mounts, and hosts that store and mount
real bundles there, with real rows.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.domain.cloud import Purpose, Resource, Volume
from app.errors import EnvironmentFault, FailureKind, Unavailable
from app.ports.cloud import Resources
from infra.bundles import LocalBundles
from infra.ebs import Device, EbsBundles
from infra.fakes.account import Delays, Died, Trouble
from infra.fakes.clock import ManualClock
from infra.fakes.cloud import FakeCloud
from tests.unit.test_manifest import make

GIB = 1 << 30
ZONE = "fake-1a"
HOSTS = ("i-1", "i-2", "i-3")


class Zone:
    """Where volumes and snapshots have their bytes: a folder each. `late_s` is how long devices take to show;
    `hidden` never do, `sizes` are what some show instead of their own.
    """

    def __init__(self, root: Path, clock: ManualClock) -> None:
        self._root = root
        self._clock = clock
        self.late_s = 0.0
        self.hidden = False
        self.size_bytes: int | None = None
        self.shows_ns: dict[tuple[str, str], int] = {}
        self.sizes: dict[str, int] = {}
        self.mounts: dict[Path, str] = {}

    def bytes_of(self, cloud_id: str) -> Path:
        return self._root / cloud_id

    def made(self, volume: Volume) -> None:
        self.sizes[volume.volume_id] = self.size_bytes or volume.size_gib * GIB
        if volume.snapshot_id is None:
            (self.bytes_of(volume.volume_id) / "files").mkdir(parents=True)
        elif self.bytes_of(volume.snapshot_id).exists():
            shutil.copytree(self.bytes_of(volume.snapshot_id), self.bytes_of(volume.volume_id))

    def attached(self, volume_id: str, instance_id: str, device: str) -> None:
        shows_ns = self._clock.boot_ns() + int(self.late_s * 1e9)
        self.shows_ns[volume_id, instance_id] = shows_ns

    def detached(self, volume_id: str, instance_id: str) -> bool:
        if volume_id in self.mounts.values():
            return False
        del self.shows_ns[volume_id, instance_id]
        return True

    def snapshotted(self, snapshot_id: str, volume_id: str) -> None:
        attached = {attached for attached, _ in self.shows_ns}
        assert volume_id not in attached, "a snapshot of what a host may still write may be torn"
        shutil.copytree(self.bytes_of(volume_id), self.bytes_of(snapshot_id))

    def deleted(self, cloud_id: str) -> None:
        shutil.rmtree(self.bytes_of(cloud_id), ignore_errors=True)

    def shows(self, volume_id: str, instance_id: str) -> bool:
        shows_ns = self.shows_ns.get((volume_id, instance_id))
        return shows_ns is not None and shows_ns <= self._clock.boot_ns() and not self.hidden


class LinkedDisks:
    """`Disks` of one host of a zone: a mount is a link to the volume's folder. `busy` points stay mounted."""

    def __init__(self, zone: Zone, instance_id: str) -> None:
        self._zone = zone
        self._instance_id = instance_id
        self.busy: set[Path] = set()

    def find(self, volume_id: str) -> Device | None:
        if not self._zone.shows(volume_id, self._instance_id):
            return None
        return Device(self._zone.bytes_of(volume_id), self._zone.sizes[volume_id])

    def identity(self, device: Device) -> uuid.UUID | None:
        file = device.path / "identity"
        return uuid.UUID(file.read_text()) if file.exists() else None

    def is_blank(self, device: Device) -> bool:
        return self.identity(device) is None and not any((device.path / "files").iterdir())

    def make(self, device: Device, identity: uuid.UUID) -> None:
        (device.path / "identity").write_text(str(identity))

    def mount(self, device: Device, point: Path, *, writable: bool) -> None:
        assert point not in self._zone.mounts
        assert point.name not in {"", "files"}
        point.parent.mkdir(parents=True, exist_ok=True)
        if point.is_dir():
            point.rmdir()
        point.symlink_to(device.path / "files")
        self._zone.mounts[point] = device.path.name

    def mounted(self) -> frozenset[Path]:
        return frozenset(self._zone.mounts)

    def unmount(self, point: Path) -> bool:
        if point in self.busy:
            return False
        if self._zone.mounts.pop(point, None) is not None:
            point.unlink()
        elif point.is_dir() and not any(point.iterdir()):
            point.rmdir()
        return True


class FailingRows:
    """Rows whose database is away at one call, before it is done or after."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._trouble: tuple[int, Trouble] | None = None
        self.calls: list[str] = []

    def fail_at(self, n: int, how: Trouble) -> None:
        self._trouble = (len(self.calls) + n, how)

    def __getattr__(self, verb: str) -> Any:
        def call(*args: Any) -> Any:
            self.calls.append(verb)
            trouble = None
            if self._trouble is not None and self._trouble[0] == len(self.calls):
                trouble = self._trouble[1]
            if trouble is Trouble.REFUSED:
                raise Unavailable("database_away", f"planted in {verb}")
            answer = getattr(self._resources, verb)(*args)
            if trouble is Trouble.LOST:
                raise Unavailable("database_away", f"planted in {verb}, which is done")
            if trouble is Trouble.DIED:
                raise Died(verb)
            return answer

        return call


@dataclass(slots=True)
class Rig:
    """Three hosts of one zone; `number` tells it from others with the same rows."""

    folder: Path
    clock: ManualClock
    resources: Resources
    number: int = 1
    delays: Delays = field(default_factory=Delays)
    zone: Zone = field(init=False)
    cloud: FakeCloud = field(init=False)
    rows: FailingRows = field(init=False)
    disks: dict[str, LinkedDisks] = field(init=False)

    def __post_init__(self) -> None:
        self.zone = Zone(self.folder / "zone", self.clock)
        self.cloud = FakeCloud(
            self.clock,
            dict.fromkeys(HOSTS, ZONE),
            plane=self.zone,
            delays=self.delays,
            first_id=1000 * self.number,
        )
        self.rows = FailingRows(self.resources)
        self.disks = {host: LinkedDisks(self.zone, host) for host in HOSTS}

    @property
    def bundle_id(self) -> str:
        return f"build_{self.number}"

    def process(self, host: str = "i-1") -> EbsBundles:
        """A worker process of a host, new."""
        root = self.folder / host / "bundles"
        return EbsBundles(
            root,
            LocalBundles(root),
            self.cloud,
            self.rows,
            self.disks[host],
            self.clock,
            host_id=host,
            zone=lambda: ZONE,
        )

    def stage(self, host: str = "i-1", memory: bytes = b"memory" * 1000) -> Path:
        directory = self.process(host).staging(self.bundle_id)
        make(directory, memory_img=memory, state_bin=b"state")
        return directory

    def stored(self) -> None:
        """On host 1, and mounted there."""
        self.stage()
        self.process().store(self.bundle_id)

    def reboot(self, host: str = "i-1") -> None:
        """Nothing is mounted any more, the mount points are empty, and all that is attached still is."""
        for point in list(self.zone.mounts):
            if point.is_relative_to(self.folder / host):
                del self.zone.mounts[point]
                point.unlink()
                point.mkdir()

    def settle(self) -> None:
        """Whatever was asked of the cloud comes true."""
        self.clock.advance(60)

    def volumes(self) -> set[str]:
        return {volume.volume_id for volume in self.cloud.volumes()}

    def snapshots(self) -> set[str]:
        return {snapshot.snapshot_id for snapshot in self.cloud.snapshots()}

    def living(self) -> tuple[Resource, ...]:
        return self.resources.of_bundle(self.bundle_id)

    def check_consistent(self) -> None:
        """Each resource has its row, each row its resource, and each mount its volume that is attached."""
        self.settle()
        noted = {row.cloud_id for row in self.living()}
        assert noted == self.volumes() | self.snapshots()
        assert set(self.zone.mounts.values()) <= self.volumes()
        for folder in ("writing", "stored"):
            for host in HOSTS:
                there = self.folder / host / "bundles" / folder
                entries = set(there.iterdir()) if there.exists() else set()
                assert entries == {point for point in self.zone.mounts if point.parent == there}

    def check_nothing_left(self) -> None:
        self.check_consistent()
        assert self.living() == ()
        assert not self.zone.mounts

    def check_warm(self, *hosts: str) -> None:
        """One snapshot, a volume mounted, bound and settled on each of these hosts, and nothing else."""
        self.check_consistent()
        assert len(self.snapshots()) == 1
        volumes = self.cloud.volumes()
        assert len(volumes) == len(hosts)
        assert all(each.attachment is not None and each.attachment.bound for each in volumes)
        rows = self.living()
        assert all(row.deadline_ns is None for row in rows)
        readers = {row.host_id for row in rows if row.purpose is Purpose.READ}
        assert readers == set(hosts)
        for host in hosts:
            bundles = self.process(host)
            bundle = bundles.open(self.bundle_id)
            assert bundle.directory == self.folder / host / "bundles" / "stored" / self.bundle_id
            assert bundle.state.read_bytes() == b"state"
            assert bundles.mounted() == (self.bundle_id,)
            assert not (self.folder / host / "bundles" / "staged" / self.bundle_id).exists()


def reason_of(fault: EnvironmentFault) -> object:
    """Of a bundle that could not be had, with what is always told."""
    assert fault.kind is FailureKind.SNAPSHOT_UNAVAILABLE
    assert fault.evidence["bundle"]
    assert fault.evidence["host"]
    return fault.evidence["reason"]
