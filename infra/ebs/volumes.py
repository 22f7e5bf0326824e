"""One volume of this host from its row to its device, and back to nothing; every wait has an end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app.domain.cloud import (
    TAG_BUNDLE,
    TAG_DEADLINE,
    TAG_OWNER,
    Attachment,
    AttachmentState,
    Resource,
    Volume,
    VolumeState,
)
from app.errors import CloudRefused, Conflict, EnvironmentFault
from app.ports.cloud import Cloud, Resources
from app.ports.world import Clock
from infra.ebs.disks import Device, Disks
from infra.ebs.faults import unavailable
from infra.ebs.waiting import patiently, until

# Each is many times what AWS takes as a rule.
CREATE_S, ATTACH_S, DEVICE_S, DETACH_S, DELETE_S = 180.0, 120.0, 60.0, 180.0, 60.0
# What was made may be missing from AWS's answers for so long.
SHOWS_UP_S = 15.0
GIB = 1 << 30
# "Device names for volumes on Amazon EC2 instances": sdf to sdp are recommended, xvdba to xvddx are allowed too.
DEVICE_NAMES = (
    *(f"/dev/sd{letter}" for letter in "fghijklmnop"),
    *(f"/dev/xvd{first}{second}" for first in "bcd" for second in "abcdefghijklmnopqrstuvwx"),
)
_OVER = frozenset({VolumeState.DELETING, VolumeState.DELETED})
_THERE = frozenset({AttachmentState.ATTACHING, AttachmentState.ATTACHED})


class Volumes:
    """The volumes of one host, `instance_id` to the cloud. Raises EnvironmentFault(snapshot_unavailable) with a
    `reason` for what did not come in time, CloudRefused and Unavailable as the cloud does.
    """

    def __init__(
        self, cloud: Cloud, resources: Resources, disks: Disks, clock: Clock, instance_id: str
    ) -> None:
        self._cloud = cloud
        self._resources = resources
        self._disks = disks
        self._clock = clock
        self._instance_id = instance_id

    def is_usable(self, row: Resource) -> bool:
        """Whether to go on with what an earlier attempt left; one that the cloud has not answered for is."""
        if row.cloud_id is None:
            return True
        volume = patiently(self._clock, lambda: self._cloud.volume(str(row.cloud_id)))
        if volume is None or volume.state in (*_OVER, VolumeState.ERROR):
            return False
        at = volume.attachment
        return at is None or (at.instance_id == self._instance_id and at.state in _THERE)

    def ready(self, row: Resource, snapshot_id: str | None) -> tuple[str, Device]:
        """Made, attached, and found on this host: its id and its device. What of that is so is not done again."""
        volume = self._made(row, snapshot_id)
        if volume.attachment is None:
            self._attach(volume)
        self._wait_attached(volume.volume_id)
        return volume.volume_id, self._device(volume)

    def bind(self, volume_id: str) -> None:
        """Should this host be terminated, its volume goes with it."""
        patiently(self._clock, lambda: self._cloud.bind(volume_id, self._instance_id))

    def detach(self, volume_id: str) -> None:
        """Not attached to this host any more."""
        patiently(self._clock, lambda: self._cloud.detach(volume_id, self._instance_id))
        if until(self._clock, lambda: self._is_free(volume_id), DETACH_S) is None:
            seen = patiently(self._clock, lambda: self._cloud.volume(volume_id))
            raise unavailable(
                "never_detached",
                f"{volume_id} has not let go of this host in {DETACH_S:.0f} s",
                volume_id=volume_id,
                **_attachment_seen(seen),
            )

    def give_up(self, row: Resource) -> None:
        """Nothing of it is left in the cloud, then in the rows. What is mounted is unmounted before. Twice is safe."""
        volume_id = self._id_of(row)
        if volume_id is not None:
            if until(self._clock, lambda: self._is_free(volume_id), 0.0) is None:
                self.detach(volume_id)
            patiently(self._clock, lambda: self._cloud.delete_volume(volume_id))
            self._wait_deleted(volume_id)
        self._resources.gone(row.token)

    def _made(self, row: Resource, snapshot_id: str | None) -> Volume:
        volume_id = row.cloud_id or self._create(row, snapshot_id)
        seen: list[Volume] = []

        def settled() -> Volume | None:
            volume = self._cloud.volume(volume_id)
            if volume is None:
                if seen or row.cloud_id is not None:
                    raise self._failed(volume_id, snapshot_id, "it vanished after it was made")
                return None
            seen[:] = [volume]
            if volume.state is VolumeState.ERROR:
                raise self._failed(volume_id, snapshot_id, "it went to the state `error`")
            return volume if volume.state in (VolumeState.AVAILABLE, VolumeState.IN_USE) else None

        made = until(self._clock, settled, CREATE_S)
        if made is None and not seen:
            raise self._failed(volume_id, snapshot_id, "it never showed up")
        if made is None:
            raise unavailable(
                "never_created",
                f"{volume_id} is `{seen[0].state.value}` after {CREATE_S:.0f} s",
                volume_id=volume_id,
                snapshot_id=snapshot_id,
                state=seen[0].state.value,
            )
        return made

    def _create(self, row: Resource, snapshot_id: str | None) -> str:
        """Asked for again under the row's token, it is the same volume."""
        made = patiently(
            self._clock,
            lambda: self._cloud.create_volume(
                token=row.token,
                zone=str(row.zone),
                size_gib=row.size_gib,
                snapshot_id=snapshot_id,
                tags=tags_of(row),
            ),
        )
        try:
            self._resources.made(row.token, made.volume_id)
        except Conflict:
            # Somebody gave its row up meanwhile: it is nobody's.
            patiently(self._clock, lambda: self._cloud.delete_volume(made.volume_id))
            raise
        return made.volume_id

    def _failed(self, volume_id: str, snapshot_id: str | None, how: str) -> EnvironmentFault:
        """AWS takes the request and uses the key afterwards: a key that it may not use shows so, and nothing else is
        known to ("CreateVolume", KmsKeyId).
        """
        return unavailable(
            "key_denied",
            f"{volume_id}: {how}: as a rule the host's role may not use the key of its encryption",
            volume_id=volume_id,
            snapshot_id=snapshot_id,
            seen=how,
        )

    def _attach(self, volume: Volume) -> None:
        last: CloudRefused | None = None
        for device in self._free_names():
            try:
                return self._attach_at(volume.volume_id, device)
            except CloudRefused as refused:
                if refused.code != "device_taken":
                    raise
                last = refused
        raise unavailable(
            "limit_exceeded",
            f"no device name of this host is free for {volume.volume_id}",
            volume_id=volume.volume_id,
            instance_id=self._instance_id,
        ) from last

    def _attach_at(self, volume_id: str, device: str) -> None:
        patiently(self._clock, lambda: self._cloud.attach(volume_id, self._instance_id, device))

    def _free_names(self) -> Iterator[str]:
        """That none of ours has; what else is attached here shows when it is tried."""
        volumes = patiently(self._clock, self._cloud.volumes)
        held = (each.attachment for each in volumes if each.attachment is not None)
        taken = {at.device for at in held if at.instance_id == self._instance_id}
        return (name for name in DEVICE_NAMES if name not in taken)

    def _wait_attached(self, volume_id: str) -> None:
        seen: list[Volume | None] = [None]

        def attached() -> Attachment | None:
            seen[0] = volume = self._cloud.volume(volume_id)
            at = volume.attachment if volume is not None else None
            here = at is not None and at.instance_id == self._instance_id
            return at if here and at is not None and at.state is AttachmentState.ATTACHED else None

        if until(self._clock, attached, ATTACH_S) is None:
            raise unavailable(
                "never_attached",
                f"{volume_id} is not attached to this host after {ATTACH_S:.0f} s",
                volume_id=volume_id,
                instance_id=self._instance_id,
                waited_s=ATTACH_S,
                **_attachment_seen(seen[0]),
            )

    def _device(self, volume: Volume) -> Device:
        volume_id, expected = volume.volume_id, volume.size_gib * GIB
        device = until(self._clock, lambda: self._disks.find(volume_id), DEVICE_S)
        if device is None:
            raise unavailable(
                "device_missing",
                f"{volume_id} is attached, and no device of this host has its id after"
                f" {DEVICE_S:.0f} s",
                volume_id=volume_id,
                instance_id=self._instance_id,
                waited_s=DEVICE_S,
            )
        if device.size_bytes != expected:
            raise unavailable(
                "device_differs",
                f"{device.path} has {device.size_bytes} bytes, {volume_id} has {expected}",
                volume_id=volume_id,
                device=str(device.path),
                expected_bytes=expected,
                seen_bytes=device.size_bytes,
            )
        return device

    def _id_of(self, row: Resource) -> str | None:
        if row.cloud_id is not None:
            return row.cloud_id
        found = until(self._clock, lambda: self._cloud.volume_of(row.token), SHOWS_UP_S)
        return found.volume_id if found is not None else None

    def _is_free(self, volume_id: str) -> bool | None:
        """Attached to nothing, or not there."""
        volume = self._cloud.volume(volume_id)
        return True if volume is None or volume.attachment is None else None

    def _wait_deleted(self, volume_id: str) -> None:
        def deleted() -> bool | None:
            volume = self._cloud.volume(volume_id)
            return True if volume is None or volume.state in _OVER else None

        if until(self._clock, deleted, DELETE_S) is None:
            raise unavailable(
                "never_deleted",
                f"{volume_id} is still there {DELETE_S:.0f} s after it was deleted",
                volume_id=volume_id,
            )


def tags_of(row: Resource) -> Mapping[str, str]:
    """The same each time that it is asked for: a token with other arguments is refused."""
    return {
        TAG_BUNDLE: row.bundle_id,
        TAG_OWNER: row.host_id or row.bundle_id,
        TAG_DEADLINE: str(row.deadline_ns),
    }


def _attachment_seen(volume: Volume | None) -> dict[str, object]:
    if volume is None:
        return {"state": "gone"}
    at = volume.attachment
    if at is None:
        return {"state": volume.state.value, "attachment": "none"}
    return {
        "state": volume.state.value,
        "attachment": at.state.value,
        "attached_to": at.instance_id,
        "asked_device": at.device,
    }
