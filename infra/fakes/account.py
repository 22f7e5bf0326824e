"""What a fake cloud account holds, how it looks from outside, and what comes true as time passes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from app.domain.cloud import (
    Attachment,
    AttachmentState,
    CloudSnapshot,
    SnapshotState,
    Volume,
    VolumeState,
)

ACCOUNT = "111122223333"
ATTACHMENTS_MAX = 28


class Trouble(StrEnum):
    """How a call fails: not done and refused, not done and to be asked again later, done and the answer lost, done
    and nobody there any more to hear it.
    """

    REFUSED = "refused"
    THROTTLED = "throttled"
    LOST = "lost"
    DIED = "died"


class Died(BaseException):
    """The process that asked is gone: nothing of it cleans up."""


class Key(StrEnum):
    """What becomes of a volume whose snapshot's key the host may not use: AWS answers first, and fails afterwards."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    ERROR = "error"
    VANISHES = "vanishes"


@dataclass(frozen=True, slots=True)
class Delays:
    """How many seconds each state lasts. `listed_s`: until what was made shows in any answer."""

    creating_s: float = 2.0
    attaching_s: float = 3.0
    detaching_s: float = 2.0
    deleting_s: float = 1.0
    snapshot_s: float = 20.0
    listed_s: float = 0.0


class DataPlane(Protocol):
    """Who moves the bytes; called as each thing comes true, under the account's lock."""

    def made(self, volume: Volume) -> None: ...

    def attached(self, volume_id: str, instance_id: str, device: str) -> None: ...

    def detached(self, volume_id: str, instance_id: str) -> bool:
        """False while the instance has it mounted: it stays detaching."""
        ...

    def snapshotted(self, snapshot_id: str, volume_id: str) -> None: ...

    def deleted(self, cloud_id: str) -> None: ...


@dataclass(slots=True)
class At:
    instance_id: str
    device: str
    ready_ns: int
    bound: bool = False
    there: bool = False
    leaving_ns: int | None = None


@dataclass(slots=True)
class HeldVolume:
    volume_id: str
    zone: str
    size_gib: int
    snapshot_id: str | None
    tags: dict[str, str]
    made_ns: int
    ready_ns: int
    key: Key = Key.ALLOWED
    at: At | None = None
    deleting_ns: int | None = None


@dataclass(slots=True)
class HeldSnapshot:
    snapshot_id: str
    volume_id: str
    size_gib: int
    tags: dict[str, str]
    made_ns: int
    ready_ns: int
    owner_id: str = ACCOUNT
    shared: bool = True
    key: Key = Key.ALLOWED
    fails: bool = False


class Holdings:
    """All volumes and snapshots of the account, and who moves their bytes."""

    def __init__(self, plane: DataPlane | None) -> None:
        self.volumes: dict[str, HeldVolume] = {}
        self.snapshots: dict[str, HeldSnapshot] = {}
        self.plane = plane

    def come_true(self, now_ns: int, *, attaches: bool = True) -> None:
        """Everything whose time has come."""
        for volume in list(self.volumes.values()):
            deleted = volume.deleting_ns is not None and volume.deleting_ns <= now_ns
            if deleted or (volume.key is Key.VANISHES and volume.ready_ns <= now_ns):
                self.drop(volume.volume_id)
            elif volume.at is not None:
                self._come_about(volume, volume.at, now_ns, attaches)

    def drop(self, cloud_id: str) -> None:
        """It is gone, however it was used."""
        volume, snapshot = self.volumes.pop(cloud_id, None), self.snapshots.pop(cloud_id, None)
        if self.plane is not None and (volume is not None or snapshot is not None):
            self.plane.deleted(cloud_id)

    def attached_to(self, instance_id: str) -> Iterable[At]:
        """Every attachment of an instance, in whatever state."""
        return (
            volume.at
            for volume in self.volumes.values()
            if volume.at is not None and volume.at.instance_id == instance_id
        )

    def _come_about(self, volume: HeldVolume, at: At, now_ns: int, attaches: bool) -> None:
        if at.leaving_ns is not None:
            left = at.leaving_ns <= now_ns
            if left and self._lets_go(volume, at):
                volume.at = None
        elif attaches and not at.there and at.ready_ns <= now_ns:
            at.there = True
            if self.plane is not None:
                self.plane.attached(volume.volume_id, at.instance_id, at.device)

    def _lets_go(self, volume: HeldVolume, at: At) -> bool:
        if self.plane is None or not at.there:
            return True
        return self.plane.detached(volume.volume_id, at.instance_id)


def show_volume(volume: HeldVolume, now_ns: int, wall_ns: int) -> Volume:
    """As the cloud shows it at that time; `wall_ns` is its clock then."""
    return Volume(
        volume_id=volume.volume_id,
        state=_volume_state(volume, now_ns),
        zone=volume.zone,
        size_gib=volume.size_gib,
        snapshot_id=volume.snapshot_id,
        attachment=None if volume.at is None else _attachment(volume.at, now_ns),
        tags=dict(volume.tags),
        made_wall_ns=wall_ns - now_ns + volume.made_ns,
    )


def show_snapshot(snapshot: HeldSnapshot, now_ns: int, wall_ns: int) -> CloudSnapshot:
    """As `show_volume`."""
    over, took = now_ns - snapshot.made_ns, max(1, snapshot.ready_ns - snapshot.made_ns)
    state = SnapshotState.PENDING
    if now_ns >= snapshot.ready_ns:
        state = SnapshotState.ERROR if snapshot.fails else SnapshotState.COMPLETED
    return CloudSnapshot(
        snapshot_id=snapshot.snapshot_id,
        state=state,
        size_gib=snapshot.size_gib,
        volume_id=snapshot.volume_id,
        owner_id=snapshot.owner_id,
        progress_percent=min(100, 100 * over // took),
        message="it could not be completed" if state is SnapshotState.ERROR else "",
        tags=dict(snapshot.tags),
        made_wall_ns=wall_ns - now_ns + snapshot.made_ns,
    )


def _volume_state(volume: HeldVolume, now_ns: int) -> VolumeState:
    if volume.deleting_ns is not None:
        return VolumeState.DELETING
    if now_ns < volume.ready_ns:
        return VolumeState.CREATING
    if volume.key is Key.ERROR:
        return VolumeState.ERROR
    return VolumeState.AVAILABLE if volume.at is None else VolumeState.IN_USE


def _attachment(at: At, now_ns: int) -> Attachment:
    state = AttachmentState.ATTACHED if at.there else AttachmentState.ATTACHING
    if at.leaving_ns is not None:
        late = now_ns >= at.leaving_ns
        state = AttachmentState.BUSY if late else AttachmentState.DETACHING
    return Attachment(at.instance_id, at.device, state, at.bound)
