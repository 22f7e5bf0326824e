"""A staged bundle on its way to a snapshot: a volume of its own, a filesystem, a copy, and the snapshot of that."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.domain.cloud import CloudSnapshot, Purpose, Resource, ResourceKind
from app.errors import EnvironmentFault
from app.ids import new_id
from app.ports.cloud import Resources
from infra.ebs import copying
from infra.ebs.disks import Device, Disks
from infra.ebs.faults import unavailable
from infra.ebs.snapshots import Snapshots
from infra.ebs.volumes import Volumes

# Until when a row is left alone that nobody has finished: longer than all the waits in between.
WRITE_WITHIN_NS, KEEP_WITHIN_NS = 7200 * 1_000_000_000, 14_400 * 1_000_000_000
_BUNDLES = uuid.UUID("6b1c5a0e-6a86-4ba5-9a5f-0d9f2f6d1c5b")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a host has what it makes, and as whom it asks for it."""

    host_id: str
    zone: Callable[[], str]
    writing: Path
    stored: Path

    def point(self, row: Resource) -> Path:
        """Where a volume is mounted."""
        folder = self.writing if row.purpose is Purpose.WRITE else self.stored
        return folder / row.bundle_id


def identity_of(bundle_id: str) -> uuid.UUID:
    """The filesystem of a bundle says which bundle it is."""
    return uuid.uuid5(_BUNDLES, bundle_id)


class Storing:
    """Raises as `Volumes` does. What an attempt leaves behind is in its rows."""

    def __init__(
        self,
        volumes: Volumes,
        snapshots: Snapshots,
        resources: Resources,
        disks: Disks,
        place: Place,
        check: Callable[[str], None],
    ) -> None:
        self._volumes = volumes
        self._snapshots = snapshots
        self._resources = resources
        self._disks = disks
        self._place = place
        self._check = check

    def kept(self, bundle_id: str, staged: Path) -> tuple[Resource, str]:
        """A complete snapshot of a staged bundle: its row, not yet settled, and its id. An earlier attempt that had
        come to its snapshot is gone on with, for that was begun when all was written; any other is begun anew.
        """
        row = self.row(bundle_id, Purpose.KEEP)
        found = self._snapshots.find(row) if row is not None else None
        if row is None or found is None:
            self.give_up(bundle_id)
            row, found = self._keep(bundle_id, staged)
        self._snapshots.note(row, found)
        self._snapshots.complete(found.snapshot_id)
        self._drop(bundle_id, Purpose.WRITE)
        return row, found.snapshot_id

    def give_up(self, bundle_id: str) -> None:
        """Nothing is left of an attempt, finished or not: no volume it was written on, no snapshot. Twice is safe."""
        self._drop(bundle_id, Purpose.WRITE)
        for row in self.rows(bundle_id, Purpose.KEEP):
            self._snapshots.give_up(row)

    def row(self, bundle_id: str, purpose: Purpose) -> Resource | None:
        """What there is of a bundle for a purpose; volumes, of this host only."""
        return next(iter(self.rows(bundle_id, purpose)), None)

    def rows(self, bundle_id: str, purpose: Purpose) -> tuple[Resource, ...]:
        return tuple(
            row
            for row in self._resources.of_bundle(bundle_id)
            if row.purpose is purpose and row.host_id in (None, self._place.host_id)
        )

    def _keep(self, bundle_id: str, staged: Path) -> tuple[Resource, CloudSnapshot]:
        """Begun, which the cloud has answered: it may be a while until a search shows it."""
        if not staged.is_dir():
            raise unavailable(
                "not_staged", f"bundle {bundle_id} is neither stored nor staged on this host"
            )
        self._check(bundle_id)
        size_gib = copying.volume_gib(staged)
        volume_id = self._write(bundle_id, staged, size_gib)
        kept = Resource(new_id("keep"), ResourceKind.SNAPSHOT, Purpose.KEEP, bundle_id, size_gib)
        row = self._resources.intend(kept, KEEP_WITHIN_NS)
        return row, self._snapshots.begin(row, volume_id)

    def _write(self, bundle_id: str, staged: Path, size_gib: int) -> str:
        row = self._resources.intend(
            Resource(
                new_id("write"),
                ResourceKind.VOLUME,
                Purpose.WRITE,
                bundle_id,
                size_gib,
                host_id=self._place.host_id,
                zone=self._place.zone(),
            ),
            WRITE_WITHIN_NS,
        )
        volume_id, device = self._volumes.ready(row, None)
        self._fill(device, self._place.point(row), bundle_id, staged)
        self._volumes.detach(volume_id)
        return volume_id

    def _fill(self, device: Device, point: Path, bundle_id: str, staged: Path) -> None:
        if not self._disks.is_blank(device):
            raise unavailable(
                "not_blank",
                f"{device.path} should be a new volume, and something is written on it",
                device=str(device.path),
            )
        self._disks.make(device, identity_of(bundle_id))
        self._disks.mount(device, point, writable=True)
        try:
            copying.copy(staged, point)
        except OSError as error:
            raise unavailable(
                "disk_failed", f"copying to {device.path}: {error}", device=str(device.path)
            ) from error
        finally:
            unmounted = self._disks.unmount(point)
        if not unmounted:
            raise busy(point)

    def _drop(self, bundle_id: str, purpose: Purpose) -> None:
        for row in self.rows(bundle_id, purpose):
            if not self._disks.unmount(self._place.point(row)):
                raise busy(self._place.point(row))
            self._volumes.give_up(row)


def busy(point: Path) -> EnvironmentFault:
    """What should be nobody's is used by somebody."""
    return unavailable("busy", f"{point} is in use and stays mounted", point=str(point))
