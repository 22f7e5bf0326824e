"""`Bundles` as EBS snapshots. On a host a bundle is a volume made from its snapshot, mounted where its folder would be.

Read in this order: `storing.py` (staged bundle to snapshot), this file (snapshot to mounted bundle, and back to
nothing), `volumes.py` and `snapshots.py` (each step with the cloud), `disks.py` (each with the kernel).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import structlog

from app.domain.cloud import Purpose, Resource, ResourceKind
from app.domain.machine import Bundle
from app.errors import Conflict, EnvironmentFault, NotFound, PromigenceError, Unavailable
from app.ids import new_id
from app.ports.cloud import Cloud, Resources
from app.ports.world import Bundles, Clock
from infra.ebs.disks import Device, Disks
from infra.ebs.faults import is_clouds, told, unavailable
from infra.ebs.locks import Locks
from infra.ebs.snapshots import Snapshots
from infra.ebs.storing import Place, Storing, busy, identity_of
from infra.ebs.volumes import Volumes

READ_WITHIN_NS = 3600 * 1_000_000_000
# What is attached and not mounted may be had again without being made anew, after a boot too; then it is given up.
SPARE_S = 600.0
# As long as the longest work on a bundle, storing it, may take; who deletes it comes by again.
LOCK_S, DELETE_LOCK_S = 7200.0, 60.0

log = structlog.get_logger(__name__)


class Folders(Bundles, Protocol):
    """Bundles as folders of this host, who checks them: `stored/<id>` and `staged/<id>` below one directory."""

    def forget(self, bundle_id: str) -> None:
        """All that is known of a bundle's bytes: they come from elsewhere the next time."""
        ...


class EbsBundles:
    """The `Bundles` port. `folders` are those below `root`; a stored bundle's is a mount point, and not there while
    none is mounted. `host_id` is this instance's id to the cloud, `zone` where it is.

    Every volume and snapshot has a row before it is asked for, so that whoever comes next finds what a crash, or a
    cloud that did not answer, left of an attempt. Of what failed nothing is left behind; where the cloud is away and it
    cannot be removed, its row says until when it may be there.
    """

    stores_elsewhere = True

    def __init__(
        self,
        root: Path,
        folders: Folders,
        cloud: Cloud,
        resources: Resources,
        disks: Disks,
        clock: Clock,
        *,
        host_id: str,
        zone: Callable[[], str],
    ) -> None:
        self._folders = folders
        self._resources = resources
        self._disks = disks
        root = root.resolve()  # as the kernel names mount points
        self._staged = root / "staged"
        self._place = Place(host_id, zone, root / "writing", root / "stored")
        self._volumes = Volumes(cloud, resources, disks, clock, host_id)
        snapshots = Snapshots(cloud, resources, clock)
        self._storing = Storing(
            self._volumes, snapshots, resources, disks, self._place, folders.read
        )
        self._locks = Locks(root / "volumes.lock", clock)
        # Mounted ones whose rows are finished too, as far as this process has seen.
        self._finished: set[str] = set()
        # By token: since when, as this process has seen it, a volume is mounted nowhere.
        self._spare_since_ns: dict[str, int] = {}
        self._clock = clock

    def staging(self, bundle_id: str) -> Path:
        return self._folders.staging(bundle_id)

    def watch(self, bundle_id: str) -> None:
        self._folders.watch(bundle_id)

    def record(self, bundle_id: str) -> int:
        return self._folders.record(bundle_id)

    def store(self, bundle_id: str) -> Bundle:
        with self._alone(bundle_id):
            kept = self._storing.row(bundle_id, Purpose.KEEP)
            if kept is None or kept.deadline_ns is not None:
                with self._clean(bundle_id, "stored", self._forget_attempt):
                    self._store(bundle_id)
            self._folders.staging(bundle_id)
            with self._clean(bundle_id, "mounted", self._give_up_here):
                self._mount(bundle_id)
        return self._folders.open(bundle_id)

    def mount(self, bundle_id: str) -> None:
        if (self._staged / bundle_id).is_dir():  # not stored yet
            self._folders.open(bundle_id)
            return
        with self._alone(bundle_id), self._clean(bundle_id, "mounted", self._give_up_here):
            if bundle_id in self._finished and self._is_mounted(bundle_id):
                self._folders.open(bundle_id)
            else:
                self._mount(bundle_id)

    def open(self, bundle_id: str) -> Bundle:
        return self._folders.open(bundle_id)

    def unread(self) -> tuple[str, ...]:
        return self._folders.unread()

    def read(self, bundle_id: str) -> None:
        self._folders.read(bundle_id)

    def refused(self) -> tuple[tuple[str, EnvironmentFault], ...]:
        return self._folders.refused()

    def mounted(self) -> tuple[str, ...]:
        points = self._disks.mounted()
        return tuple(
            each
            for each in self._folders.mounted()
            if self._place.stored / each in points or (self._staged / each).is_dir()
        )

    def known(self) -> tuple[str, ...]:
        """Of volumes that are not mounted too: whoever deletes the bundle is rid of them."""
        rows = {row.bundle_id for row in self._resources.of_host(self._place.host_id)}
        return tuple(sorted({*self._folders.known(), *rows}))

    def evict(self, bundle_id: str) -> bool:
        """The cloud may take its time, or be away: what is left of the volume then, `tidy` gives up."""
        with self._locks.held(bundle_id, 0.0) as ours:
            return ours and self._evict(bundle_id)

    def release(self) -> None:
        for row in self._resources.of_host(self._place.host_id):
            with self._locks.held(row.bundle_id, 0.0) as ours:
                if ours:
                    self._try_give_up(row)

    def tidy(self) -> None:
        for row in self._resources.of_host(self._place.host_id):
            if row.purpose is Purpose.READ and self._is_unfinished(row):
                with self._locks.held(row.bundle_id, 0.0) as ours:
                    if ours:
                        self._finish(row)

    def delete(self, bundle_id: str) -> None:
        """Raises CloudRefused, and Unavailable where the cloud or the rows are away: the next call goes on."""
        with self._alone(bundle_id, DELETE_LOCK_S):
            self._folders.staging(bundle_id)
            self._storing.give_up(bundle_id)
            if self._disks.unmount(self._place.stored / bundle_id):
                self._give_up_here(bundle_id)
                self._folders.delete(bundle_id)

    # A snapshot, and what was stored in it.

    def _store(self, bundle_id: str) -> None:
        if self._storing.row(bundle_id, Purpose.KEEP) is None:
            self._give_up_here(bundle_id)
        row, snapshot_id = self._storing.kept(bundle_id, self._staged / bundle_id)
        self._mount_from(bundle_id, snapshot_id, row.size_gib)
        self._folders.store(bundle_id)
        self._resources.settle(row.token)

    def _forget_attempt(self, bundle_id: str) -> None:
        self._give_up_here(bundle_id)
        self._storing.give_up(bundle_id)

    # A volume of this host, and what is mounted from it.

    def _mount(self, bundle_id: str) -> None:
        kept = self._storing.row(bundle_id, Purpose.KEEP)
        if kept is None or kept.cloud_id is None or kept.deadline_ns is not None:
            raise unavailable("not_stored", f"bundle {bundle_id} is stored nowhere")
        self._mount_from(bundle_id, kept.cloud_id, kept.size_gib)

    def _mount_from(self, bundle_id: str, snapshot_id: str, size_gib: int) -> None:
        row = self._row_to_read(bundle_id, size_gib)
        volume_id, point = row.cloud_id, self._place.point(row)
        if volume_id is None and not self._disks.unmount(point):
            raise busy(point)  # from a volume that no row knows
        if volume_id is None or not self._is_mounted(bundle_id):
            volume_id, device = self._volumes.ready(row, snapshot_id)
            self._check_identity(device, bundle_id, snapshot_id, volume_id)
            self._forget(bundle_id)
            self._disks.mount(device, point, writable=False)
        self._folders.open(bundle_id)
        self._volumes.bind(volume_id)
        self._resources.settle(row.token)
        self._finished.add(bundle_id)

    def _row_to_read(self, bundle_id: str, size_gib: int) -> Resource:
        """Of the volume that an earlier attempt or boot of this host left, if that is still of use."""
        for row in self._storing.rows(bundle_id, Purpose.READ):
            if self._is_mounted(bundle_id) or self._volumes.is_usable(row):
                return row
            self._volumes.give_up(row)
        new = Resource(
            new_id("read"),
            ResourceKind.VOLUME,
            Purpose.READ,
            bundle_id,
            size_gib,
            host_id=self._place.host_id,
            zone=self._place.zone(),
        )
        return self._resources.intend(new, READ_WITHIN_NS)

    def _check_identity(
        self, device: Device, bundle_id: str, snapshot_id: str, volume_id: str
    ) -> None:
        expected, seen = identity_of(bundle_id), self._disks.identity(device)
        if seen != expected:
            raise unavailable(
                "wrong_bundle",
                f"{snapshot_id} holds no filesystem of bundle {bundle_id}",
                snapshot_id=snapshot_id,
                volume_id=volume_id,
                expected_uuid=str(expected),
                seen_uuid=None if seen is None else str(seen),
            )

    def _evict(self, bundle_id: str) -> bool:
        if (self._staged / bundle_id).is_dir():
            return False
        rows = self._storing.rows(bundle_id, Purpose.READ)
        if self._is_mounted(bundle_id) and (
            not rows or self._storing.row(bundle_id, Purpose.KEEP) is None
        ):
            return False
        return all(map(self._try_give_up, rows))

    def _is_unfinished(self, row: Resource) -> bool:
        """Mounted and no more than that, or mounted nowhere for longer than it is kept so."""
        if self._is_mounted(row.bundle_id):
            self._spare_since_ns.pop(row.token, None)
            return row.deadline_ns is not None
        now_ns = self._clock.boot_ns()
        since_ns = self._spare_since_ns.setdefault(row.token, now_ns)
        return now_ns - since_ns >= int(SPARE_S * 1_000_000_000)

    def _finish(self, row: Resource) -> None:
        if not self._is_mounted(row.bundle_id):
            self._try_give_up(row)
            return
        try:
            with self._clean(row.bundle_id, "mounted", self._give_up_here):
                self._mount(row.bundle_id)
        except EnvironmentFault as fault:
            log.warning("mount_failed", bundle_id=row.bundle_id, error=fault.message)

    def _try_give_up(self, row: Resource) -> bool:
        """Whether it is not mounted any more; what the cloud has not heard of yet, it will hear from `tidy`."""
        if not self._disks.unmount(self._place.point(row)):
            return False
        try:
            if row.purpose is Purpose.READ:
                self._forget(row.bundle_id)
            self._volumes.give_up(row)
        except PromigenceError as error:
            self._spare_since_ns[row.token] = 0
            log.warning(
                "volume_stays",
                bundle_id=row.bundle_id,
                volume_id=row.cloud_id,
                code=error.code,
                error=error.message,
            )
        return True

    def _give_up_here(self, bundle_id: str) -> None:
        """Nothing of a stored bundle is left on this host."""
        if not self._disks.unmount(self._place.stored / bundle_id):
            return
        self._forget(bundle_id)
        for row in self._storing.rows(bundle_id, Purpose.READ):
            self._volumes.give_up(row)

    def _forget(self, bundle_id: str) -> None:
        self._finished.discard(bundle_id)
        self._folders.forget(bundle_id)

    @contextmanager
    def _clean(self, bundle_id: str, done: str, undo: Callable[[str], None]) -> Iterator[None]:
        """Inside, what fails is undone, and told as a fault. Without the database it is neither: what there is
        stays as its rows say, and the same call goes on with it.
        """
        try:
            yield
        except (EnvironmentFault, Conflict, NotFound) as error:
            failed: PromigenceError = error
        except PromigenceError as error:
            if not is_clouds(error):
                raise
            failed = error
        else:
            return
        try:
            undo(bundle_id)
        except PromigenceError as error:
            log.warning("volume_stays", bundle_id=bundle_id, code=error.code, error=error.message)
        raise told(
            failed,
            f"bundle {bundle_id} could not be {done}",
            bundle=bundle_id,
            host=self._place.host_id,
        ) from failed

    @contextmanager
    def _alone(self, bundle_id: str, wait_s: float = LOCK_S) -> Iterator[None]:
        with self._locks.held(bundle_id, wait_s) as ours:
            if not ours:
                what = f"others have worked on bundle {bundle_id} for {wait_s:.0f} s"
                raise Unavailable("bundle_busy", what)
            yield

    def _is_mounted(self, bundle_id: str) -> bool:
        return self._place.stored / bundle_id in self._disks.mounted()
