"""The snapshot that a bundle is kept as: begun once, waited for, and removed."""

from __future__ import annotations

from app.domain.cloud import CloudSnapshot, Resource, SnapshotState
from app.errors import Conflict, EnvironmentFault
from app.ports.cloud import Cloud, Resources
from app.ports.world import Clock
from infra.ebs.faults import unavailable
from infra.ebs.volumes import SHOWS_UP_S, tags_of
from infra.ebs.waiting import patiently, until

# The first snapshot of a volume copies all of its blocks to S3.
COMPLETE_S, DELETE_S = 3600.0, 60.0


class Snapshots:
    """Raises as `Volumes` does."""

    def __init__(self, cloud: Cloud, resources: Resources, clock: Clock) -> None:
        self._cloud = cloud
        self._resources = resources
        self._clock = clock

    def find(self, row: Resource) -> CloudSnapshot | None:
        """What an earlier attempt began under this row, unless it has failed."""
        found = self._look(row)
        return None if found is None or found.state is SnapshotState.ERROR else found

    def begin(self, row: Resource, volume_id: str) -> CloudSnapshot:
        """The cloud knows no token here: where an answer was lost, what it made is looked for before asking again."""
        lost = False

        def begun() -> CloudSnapshot:
            nonlocal lost
            wait_s = SHOWS_UP_S if lost else 0.0
            found = until(self._clock, lambda: self._cloud.snapshot_of(row.token), wait_s)
            if found is not None:
                return found
            lost = True
            return self._cloud.create_snapshot(
                token=row.token, volume_id=volume_id, tags=tags_of(row)
            )

        return patiently(self._clock, begun)

    def note(self, row: Resource, snapshot: CloudSnapshot) -> None:
        """Its id is known."""
        try:
            self._resources.made(row.token, snapshot.snapshot_id)
        except Conflict:
            # Somebody gave its row up meanwhile: it is nobody's.
            patiently(self._clock, lambda: self._cloud.delete_snapshot(snapshot.snapshot_id))
            raise

    def complete(self, snapshot_id: str) -> None:
        """Whole: volumes can be made from it."""
        seen: list[CloudSnapshot] = []

        def completed() -> CloudSnapshot | None:
            found = self._cloud.snapshot(snapshot_id)
            if found is None:
                if seen:
                    raise _gone(snapshot_id)
                return None
            seen[:] = [found]
            if found.state is SnapshotState.ERROR:
                raise _failed(found)
            return found if found.state is SnapshotState.COMPLETED else None

        if until(self._clock, completed, COMPLETE_S) is None:
            if not seen:
                raise _gone(snapshot_id)
            raise unavailable(
                "never_completed",
                f"{snapshot_id} is at {seen[0].progress_percent} % after {COMPLETE_S:.0f} s",
                snapshot_id=snapshot_id,
                state=seen[0].state.value,
                progress_percent=seen[0].progress_percent,
            )

    def give_up(self, row: Resource) -> None:
        """Nothing of it is left in the cloud, then in the rows. Twice is safe."""
        found = self._look(row)
        if found is not None:
            snapshot_id = found.snapshot_id
            patiently(self._clock, lambda: self._cloud.delete_snapshot(snapshot_id))
            if until(self._clock, lambda: self._is_gone(snapshot_id), DELETE_S) is None:
                raise unavailable(
                    "never_deleted",
                    f"{snapshot_id} is still there {DELETE_S:.0f} s after it was deleted",
                    snapshot_id=snapshot_id,
                )
        self._resources.gone(row.token)

    def _look(self, row: Resource) -> CloudSnapshot | None:
        snapshot_id = row.cloud_id
        if snapshot_id is not None:
            return patiently(self._clock, lambda: self._cloud.snapshot(snapshot_id))
        return until(self._clock, lambda: self._cloud.snapshot_of(row.token), SHOWS_UP_S)

    def _is_gone(self, snapshot_id: str) -> bool | None:
        return True if self._cloud.snapshot(snapshot_id) is None else None


def _gone(snapshot_id: str) -> EnvironmentFault:
    return unavailable(
        "snapshot_gone",
        f"{snapshot_id} vanished before it was complete",
        snapshot_id=snapshot_id,
    )


def _failed(snapshot: CloudSnapshot) -> EnvironmentFault:
    return unavailable(
        "snapshot_failed",
        f"the cloud could not complete {snapshot.snapshot_id}: {snapshot.message}",
        snapshot_id=snapshot.snapshot_id,
        state=snapshot.state.value,
        message_of_cloud=snapshot.message,
    )
