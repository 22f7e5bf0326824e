"""The cloud account's volumes and snapshots, in a few verbs, and the rows in which we note what we make of them.

The cloud answers before it has done what was asked: everything here returns at once, and states are read again. Only
resources of this deployment are ever listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from app.domain.cloud import CloudSnapshot, Resource, ResourceKind, Volume


class Cloud(Protocol):
    """The account as one region of it sees it.

    Any call raises CloudRefused with a code of the cloud's (`app/errors.py` lists them) and Unavailable(cloud_away)
    when it does not answer; throttled calls have been tried again a bounded number of times before. A call that raised
    may have been done all the same: look by token before asking again.
    """

    def create_volume(
        self,
        *,
        token: str,
        zone: str,
        size_gib: int,
        snapshot_id: str | None,
        tags: Mapping[str, str],
    ) -> Volume:
        """Begin a volume, empty or from a snapshot, encrypted. The same token again gives the same volume.

        Raises CloudRefused(snapshot_gone, snapshot_not_ready, snapshot_denied, key_denied, too_small,
        wrong_zone, limit_exceeded, denied).
        """
        ...

    def create_snapshot(
        self, *, token: str, volume_id: str, tags: Mapping[str, str]
    ) -> CloudSnapshot:
        """Begin a snapshot of a volume as it is now. The cloud knows no token here: look by `snapshot_of` first.

        Raises CloudRefused(volume_gone, limit_exceeded, denied).
        """
        ...

    def attach(self, volume_id: str, instance_id: str, device: str) -> None:
        """Begin to attach; silent when it is on that instance, or on its way there. Raises
        CloudRefused(attached_elsewhere, device_taken, wrong_zone, volume_gone, limit_exceeded, not_ready, denied).
        """
        ...

    def bind(self, volume_id: str, instance_id: str) -> None:
        """Let an attached volume be deleted by the cloud when its instance is terminated, so that a host that dies
        takes its volumes along. Twice is safe. Raises CloudRefused(not_ready, volume_gone, denied): not_ready while
        it is not attached there.
        """
        ...

    def detach(self, volume_id: str, instance_id: str) -> None:
        """Begin to detach; silent when it is not attached. Raises CloudRefused(denied)."""
        ...

    def delete_volume(self, volume_id: str) -> None:
        """Twice is safe. Raises CloudRefused(in_use, denied)."""
        ...

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Twice is safe. Raises CloudRefused(in_use, denied)."""
        ...

    def volume(self, volume_id: str) -> Volume | None:
        """As it is now; None when there is none, or it is deleted."""
        ...

    def snapshot(self, snapshot_id: str) -> CloudSnapshot | None:
        """As it is now, whoever's it is; None when this region of the account sees none."""
        ...

    def volume_of(self, token: str) -> Volume | None:
        """This deployment's volume with that token in its tags."""
        ...

    def snapshot_of(self, token: str) -> CloudSnapshot | None:
        """This deployment's snapshot with that token in its tags."""
        ...

    def volumes(self) -> tuple[Volume, ...]:
        """All of this deployment's, by id."""
        ...

    def snapshots(self) -> tuple[CloudSnapshot, ...]:
        """All of this deployment's, by id."""
        ...


class Resources(Protocol):
    """Rows of volumes and snapshots, each written before the cloud is asked.

    Those that are gone stay for 400 days: they are what the usage statement's storage is told from.
    """

    def intend(self, resource: Resource, within_ns: int) -> Resource:
        """Note what is about to be asked for, to be finished within so long by the database's clock, which sets
        `intended_ns` and `deadline_ns`. Twice with one token gives the first row, also when that is gone by now: what
        is asked for once more needs another token.
        """
        ...

    def made(self, token: str, cloud_id: str) -> None:
        """The cloud has answered with this id. Twice is safe.

        Raises NotFound(unknown_resource), and Conflict(resource_gone, resource_differs) where the row is gone, or has
        another id: then this one is nobody's, and the caller's to delete.
        """
        ...

    def settle(self, token: str) -> None:
        """It is finished and has its owner: no deadline any more. Twice is safe.

        Raises NotFound(unknown_resource), and Conflict(resource_gone, resource_not_made).
        """
        ...

    def gone(self, token: str) -> None:
        """The cloud has no such resource any more, or never made it. Twice is safe, and so is a token of no row."""
        ...

    def forget(self) -> None:
        """Forget what has been gone for longer than any statement can be had of."""
        ...

    def of_bundle(self, bundle_id: str) -> tuple[Resource, ...]:
        """Those of a bundle that are not gone, oldest first."""
        ...

    def of_host(self, host_id: str) -> tuple[Resource, ...]:
        """Volumes of a host that are not gone, oldest first."""
        ...

    def living(self, kind: ResourceKind | None = None) -> tuple[Resource, ...]:
        """All that are not gone, oldest first."""
        ...

    def made_within(self, begin_ns: int, end_ns: int) -> tuple[Resource, ...]:
        """All that the cloud had at some moment of [begin, end) by the database's clock, gone by now or not; oldest
        first. What a statement of storage counts.
        """
        ...
