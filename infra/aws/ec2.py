"""Volumes and snapshots of one region, by the EC2 API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from app.domain.cloud import (
    TAG_DEPLOYMENT,
    TAG_TOKEN,
    AttachmentState,
    CloudSnapshot,
    Volume,
)
from app.errors import CloudRefused, Unavailable
from infra.aws import shapes
from infra.aws.refusals import translated
from infra.aws.session import Account

if TYPE_CHECKING:
    from types_boto3_ec2.literals import ResourceTypeType
    from types_boto3_ec2.type_defs import (
        CreateVolumeRequestTypeDef,
        FilterTypeDef,
        TagSpecificationTypeDef,
    )

PAGE = 500
# Between attempts at a throttled snapshot, which botocore must not repeat by itself.
PAUSES_S = (1.0, 3.0, 9.0)
_THERE = frozenset({AttachmentState.ATTACHING, AttachmentState.ATTACHED})
_UNDETACHED = _THERE | {AttachmentState.BUSY}


class Ec2Cloud:
    """The `Cloud` port. All that it makes is encrypted gp3, tagged with the deployment and its token as it is made.

    `kms_key` None: the account's key for EBS; volumes made from a snapshot keep that one's key. `volume_rate_mib`
    (100 to 300, or None) is how fast such a volume is filled from its snapshot, at a price. `Account` says how long a
    call may take. A list shows what AWS shows it: what was made a moment ago may be missing from it for some seconds.
    """

    def __init__(
        self,
        account: Account,
        deployment: str,
        pause: Callable[[float], None],
        *,
        kms_key: str | None = None,
        volume_rate_mib: int | None = None,
    ) -> None:
        self._ec2 = account.ec2()
        # A snapshot has no client token: a broken connection, tried again, could leave two.
        self._once = account.ec2(attempts=1)
        self._deployment = deployment
        self._pause = pause
        self._kms_key = kms_key
        self._volume_rate_mib = volume_rate_mib

    def create_volume(
        self,
        *,
        token: str,
        zone: str,
        size_gib: int,
        snapshot_id: str | None,
        tags: Mapping[str, str],
    ) -> Volume:
        request: CreateVolumeRequestTypeDef = {
            "ClientToken": token,
            "AvailabilityZone": zone,
            "Size": size_gib,
            "VolumeType": "gp3",
            "Encrypted": True,
            "TagSpecifications": self._tags("volume", token, tags),
        }
        if snapshot_id is None:
            if self._kms_key is not None:
                request["KmsKeyId"] = self._kms_key
        else:
            request["SnapshotId"] = snapshot_id
            if self._volume_rate_mib is not None:
                request["VolumeInitializationRate"] = self._volume_rate_mib
        with translated(token=token, zone=zone, snapshot_id=snapshot_id):
            answer = self._ec2.create_volume(**request)
        return shapes.volume(answer)

    def create_snapshot(
        self, *, token: str, volume_id: str, tags: Mapping[str, str]
    ) -> CloudSnapshot:
        for pause_s in PAUSES_S:
            try:
                return self._create_snapshot(token, volume_id, tags)
            except Unavailable as away:
                # Throttled was not begun; of all else nobody knows.
                if not away.details.get("throttled"):
                    raise
            self._pause(pause_s)
        return self._create_snapshot(token, volume_id, tags)

    def attach(self, volume_id: str, instance_id: str, device: str) -> None:
        try:
            with translated(volume_id=volume_id, instance_id=instance_id, device=device):
                self._ec2.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device=device)
        except CloudRefused:
            # The first of two attempts may have been heard.
            if not self._is_on(volume_id, instance_id, _THERE):
                raise

    def bind(self, volume_id: str, instance_id: str) -> None:
        volume = self.volume(volume_id)
        at = volume.attachment if volume is not None else None
        if volume is None:
            raise CloudRefused("volume_gone", f"there is no volume {volume_id}")
        if at is None or (at.instance_id, at.state) != (instance_id, AttachmentState.ATTACHED):
            raise CloudRefused("not_ready", f"{volume_id} is not attached to {instance_id}")
        with translated(volume_id=volume_id, instance_id=instance_id):
            self._ec2.modify_instance_attribute(
                InstanceId=instance_id,
                BlockDeviceMappings=[
                    {"DeviceName": at.device, "Ebs": {"DeleteOnTermination": True}}
                ],
            )

    def detach(self, volume_id: str, instance_id: str) -> None:
        try:
            with translated(volume_id=volume_id, instance_id=instance_id):
                self._ec2.detach_volume(VolumeId=volume_id, InstanceId=instance_id)
        except CloudRefused:
            if self._is_on(volume_id, instance_id, _UNDETACHED):
                raise

    def delete_volume(self, volume_id: str) -> None:
        try:
            with translated(volume_id=volume_id):
                self._ec2.delete_volume(VolumeId=volume_id)
        except CloudRefused as refused:
            if refused.code != "volume_gone":
                raise

    def delete_snapshot(self, snapshot_id: str) -> None:
        try:
            with translated(snapshot_id=snapshot_id):
                self._ec2.delete_snapshot(SnapshotId=snapshot_id)
        except CloudRefused as refused:
            if refused.code != "snapshot_gone":
                raise

    def volume(self, volume_id: str) -> Volume | None:
        try:
            with translated(volume_id=volume_id):
                shown = self._ec2.describe_volumes(VolumeIds=[volume_id])["Volumes"]
        except CloudRefused as refused:
            if refused.code != "volume_gone":
                raise
            return None
        living = [one for one in shown if one.get("State") != "deleted"]
        return shapes.volume(living[0]) if living else None

    def snapshot(self, snapshot_id: str) -> CloudSnapshot | None:
        try:
            with translated(snapshot_id=snapshot_id):
                shown = self._ec2.describe_snapshots(SnapshotIds=[snapshot_id])["Snapshots"]
        except CloudRefused as refused:
            if refused.code != "snapshot_gone":
                raise
            return None
        return shapes.snapshot(shown[0]) if shown else None

    def volume_of(self, token: str) -> Volume | None:
        return next(iter(self._volumes(token)), None)

    def snapshot_of(self, token: str) -> CloudSnapshot | None:
        return next(iter(self._snapshots(token)), None)

    def volumes(self) -> tuple[Volume, ...]:
        return self._volumes()

    def snapshots(self) -> tuple[CloudSnapshot, ...]:
        return self._snapshots()

    def _create_snapshot(
        self, token: str, volume_id: str, tags: Mapping[str, str]
    ) -> CloudSnapshot:
        with translated(token=token, volume_id=volume_id):
            answer = self._once.create_snapshot(
                VolumeId=volume_id,
                Description=f"promigence {self._deployment}",
                TagSpecifications=self._tags("snapshot", token, tags),
            )
        return shapes.snapshot(answer)

    def _tags(
        self, kind: ResourceTypeType, token: str, tags: Mapping[str, str]
    ) -> Sequence[TagSpecificationTypeDef]:
        words = {**tags, TAG_DEPLOYMENT: self._deployment, TAG_TOKEN: token}
        return [
            {
                "ResourceType": kind,
                "Tags": [{"Key": name, "Value": words[name]} for name in sorted(words)],
            }
        ]

    def _is_on(self, volume_id: str, instance_id: str, states: frozenset[AttachmentState]) -> bool:
        volume = self.volume(volume_id)
        at = volume.attachment if volume is not None else None
        return at is not None and at.instance_id == instance_id and at.state in states

    def _volumes(self, token: str | None = None) -> tuple[Volume, ...]:
        pages = self._ec2.get_paginator("describe_volumes")
        with translated(token=token):
            shown = [
                one
                for page in pages.paginate(
                    Filters=self._filters(token), PaginationConfig={"PageSize": PAGE}
                )
                for one in page["Volumes"]
                if one.get("State") != "deleted"
            ]
        return tuple(sorted(map(shapes.volume, shown), key=lambda volume: volume.volume_id))

    def _snapshots(self, token: str | None = None) -> tuple[CloudSnapshot, ...]:
        pages = self._ec2.get_paginator("describe_snapshots")
        with translated(token=token):
            shown = [
                one
                for page in pages.paginate(
                    OwnerIds=["self"],
                    Filters=self._filters(token),
                    PaginationConfig={"PageSize": PAGE},
                )
                for one in page["Snapshots"]
            ]
        snapshots = map(shapes.snapshot, shown)
        return tuple(sorted(snapshots, key=lambda snapshot: snapshot.snapshot_id))

    def _filters(self, token: str | None) -> list[FilterTypeDef]:
        found: list[FilterTypeDef] = [
            {"Name": f"tag:{TAG_DEPLOYMENT}", "Values": [self._deployment]}
        ]
        if token is not None:
            found.append({"Name": f"tag:{TAG_TOKEN}", "Values": [token]})
        return found
