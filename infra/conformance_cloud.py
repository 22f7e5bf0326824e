"""The contract of `Cloud` as runnable checks, for AWS's API and for what stands in for it.

`CHECKS` hold wherever the API is served. `REFUSALS` are what AWS says no to and a mock of its API lets through: they
hold for AWS itself, and for the account in memory that other tests build on.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from app.domain.cloud import (
    TAG_BUNDLE,
    TAG_DEPLOYMENT,
    TAG_TOKEN,
    AttachmentState,
    CloudSnapshot,
    SnapshotState,
    Volume,
    VolumeState,
)
from app.errors import CloudRefused
from app.ports import Cloud

DEVICE, OTHER_DEVICE = "/dev/sdf", "/dev/sdg"
NO_VOLUME, NO_SNAPSHOT = "vol-0000000000000000f", "snap-0000000000000000f"


@dataclass(slots=True)
class Subject:
    """An account under test. `instance` and `neighbour` are running in `zone`, `stranger` in `far_zone`.

    `foreign` makes a snapshot that is in the account and not of this deployment, and gives its id. `until(condition)`
    lets time pass until a condition holds, and says whether it came to.
    """

    cloud: Cloud
    deployment: str
    zone: str
    far_zone: str
    instance: str
    neighbour: str
    stranger: str
    foreign: Callable[[], str]
    until: Callable[[Callable[[], bool]], bool]
    volumes: list[str] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)

    def volume(self, *, zone: str | None = None, snapshot: CloudSnapshot | None = None) -> Volume:
        """One that is available."""
        begun = self.begin(new_token(), zone=zone, snapshot=snapshot)
        return self.wait(begun.volume_id, lambda it: it.state is VolumeState.AVAILABLE)

    def begin(
        self,
        token: str,
        *,
        zone: str | None = None,
        size_gib: int = 2,
        snapshot: CloudSnapshot | None = None,
    ) -> Volume:
        made = self.cloud.create_volume(
            token=token,
            zone=zone or self.zone,
            size_gib=size_gib,
            snapshot_id=snapshot.snapshot_id if snapshot else None,
            tags={TAG_BUNDLE: "build_1"},
        )
        self.volumes.append(made.volume_id)
        return made

    def attached(self) -> Volume:
        """One that is on `instance`, as `DEVICE`."""
        volume_id = self.volume().volume_id
        self.cloud.attach(volume_id, self.instance, DEVICE)
        return self.wait(volume_id, lambda it: _state(it) is AttachmentState.ATTACHED)

    def freeze(self, token: str, volume_id: str) -> CloudSnapshot:
        made = self.cloud.create_snapshot(
            token=token, volume_id=volume_id, tags={TAG_BUNDLE: "build_1"}
        )
        self.snapshots.append(made.snapshot_id)
        return made

    def snapshot(self) -> CloudSnapshot:
        """One that is complete."""
        begun = self.freeze(new_token(), self.volume().volume_id)
        assert self.until(lambda: self._frozen(begun).state is SnapshotState.COMPLETED)
        return self._frozen(begun)

    def wait(self, volume_id: str, condition: Callable[[Volume], bool]) -> Volume:
        """A volume as it is when a condition holds, which it must come to."""
        assert self.until(lambda: condition(self.seen(volume_id))), self.seen(volume_id)
        return self.seen(volume_id)

    def seen(self, volume_id: str) -> Volume:
        found = self.cloud.volume(volume_id)
        assert found is not None, f"{volume_id} is gone"
        return found

    def clean_up(self) -> None:
        """Give back all that was made; then nothing of it may be left."""
        for volume_id in self.volumes:
            for instance in (self.instance, self.neighbour, self.stranger):
                self.cloud.detach(volume_id, instance)
            assert self.until(lambda volume_id=volume_id: self._is_free(volume_id))  # type: ignore[misc]
            self.cloud.delete_volume(volume_id)
        for snapshot_id in self.snapshots:
            self.cloud.delete_snapshot(snapshot_id)
        assert self.until(lambda: self.cloud.volumes() == ()), self.cloud.volumes()
        assert self.until(lambda: self.cloud.snapshots() == ()), self.cloud.snapshots()

    def _is_free(self, volume_id: str) -> bool:
        volume = self.cloud.volume(volume_id)
        return volume is None or volume.attachment is None

    def _frozen(self, begun: CloudSnapshot) -> CloudSnapshot:
        found = self.cloud.snapshot(begun.snapshot_id)
        assert found is not None, f"{begun.snapshot_id} is gone"
        return found


def new_token() -> str:
    return f"tok_{secrets.token_hex(8)}"


def check_a_volume_comes_up_and_is_found_by_id_token_and_list(subject: Subject) -> None:
    token = new_token()
    made = subject.begin(token)
    assert made.state in (VolumeState.CREATING, VolumeState.AVAILABLE)
    volume = subject.wait(made.volume_id, lambda it: it.state is VolumeState.AVAILABLE)
    assert (volume.zone, volume.size_gib, volume.snapshot_id) == (subject.zone, 2, None)
    assert volume.attachment is None
    assert volume.made_wall_ns > 0
    assert volume.tags == {
        TAG_BUNDLE: "build_1",
        TAG_DEPLOYMENT: subject.deployment,
        TAG_TOKEN: token,
    }
    assert subject.cloud.volume_of(token) == volume
    assert volume in subject.cloud.volumes()


def check_lists_are_by_id(subject: Subject) -> None:
    made = {subject.volume().volume_id for _ in range(3)}
    assert [volume.volume_id for volume in subject.cloud.volumes()] == sorted(made)
    frozen = {subject.freeze(new_token(), volume_id).snapshot_id for volume_id in made}
    assert subject.until(lambda: len(subject.cloud.snapshots()) == len(frozen))
    assert [snapshot.snapshot_id for snapshot in subject.cloud.snapshots()] == sorted(frozen)


def check_what_is_not_ours_is_seen_by_id_alone(subject: Subject) -> None:
    foreign = subject.cloud.snapshot(subject.foreign())
    assert foreign is not None
    assert foreign not in subject.cloud.snapshots()
    token = foreign.tags.get(TAG_TOKEN)
    assert token is None or subject.cloud.snapshot_of(token) is None


def check_an_attachment_begins_shows_and_ends(subject: Subject) -> None:
    volume = subject.attached()
    assert volume.state is VolumeState.IN_USE
    assert volume.attachment is not None
    assert (volume.attachment.instance_id, volume.attachment.device) == (subject.instance, DEVICE)
    subject.cloud.detach(volume.volume_id, subject.instance)
    free = subject.wait(volume.volume_id, lambda it: it.attachment is None)
    assert free.state is VolumeState.AVAILABLE


def check_attaching_twice_is_once(subject: Subject) -> None:
    volume = subject.volume()
    for _ in range(2):  # the second comes while it is on its way, as after an answer that was lost
        subject.cloud.attach(volume.volume_id, subject.instance, DEVICE)
    subject.wait(volume.volume_id, lambda it: _state(it) is AttachmentState.ATTACHED)
    subject.cloud.attach(volume.volume_id, subject.instance, DEVICE)
    assert _state(subject.seen(volume.volume_id)) is AttachmentState.ATTACHED


def check_detaching_what_is_not_attached_there_is_silent(subject: Subject) -> None:
    volume = subject.attached()
    subject.cloud.detach(volume.volume_id, subject.neighbour)
    assert subject.seen(volume.volume_id).attachment == volume.attachment
    for _ in range(2):
        subject.cloud.detach(volume.volume_id, subject.instance)
    subject.wait(volume.volume_id, lambda it: it.attachment is None)
    subject.cloud.detach(volume.volume_id, subject.instance)
    subject.cloud.detach(NO_VOLUME, subject.instance)


def check_a_volume_is_bound_to_its_instance_once_it_is_there(subject: Subject) -> None:
    volume = subject.volume()
    refuses("not_ready", lambda: subject.cloud.bind(volume.volume_id, subject.instance))
    subject.cloud.attach(volume.volume_id, subject.instance, DEVICE)
    subject.wait(volume.volume_id, lambda it: _state(it) is AttachmentState.ATTACHED)
    refuses("not_ready", lambda: subject.cloud.bind(volume.volume_id, subject.neighbour))
    for _ in range(2):
        subject.cloud.bind(volume.volume_id, subject.instance)
    refuses("volume_gone", lambda: subject.cloud.bind(NO_VOLUME, subject.instance))


def check_a_snapshot_completes_and_is_found_by_id_token_and_list(subject: Subject) -> None:
    volume, token = subject.volume(), new_token()
    made = subject.freeze(token, volume.volume_id)
    assert made.state in (SnapshotState.PENDING, SnapshotState.COMPLETED)
    assert made.volume_id == volume.volume_id
    assert subject.until(lambda: _complete(subject.cloud.snapshot(made.snapshot_id)))
    snapshot = subject.cloud.snapshot(made.snapshot_id)
    assert snapshot is not None
    assert (snapshot.size_gib, snapshot.progress_percent) == (2, 100)
    assert snapshot.owner_id
    assert snapshot.tags[TAG_TOKEN] == token
    assert snapshot.tags[TAG_DEPLOYMENT] == subject.deployment
    assert subject.cloud.snapshot_of(token) == snapshot
    assert snapshot in subject.cloud.snapshots()


def check_a_volume_is_made_from_a_snapshot_that_outlives_its_own(subject: Subject) -> None:
    snapshot = subject.snapshot()
    subject.cloud.delete_volume(snapshot.volume_id)
    volume = subject.volume(snapshot=snapshot)
    assert (volume.snapshot_id, volume.size_gib) == (snapshot.snapshot_id, snapshot.size_gib)
    subject.volume(zone=subject.far_zone, snapshot=snapshot)


def check_what_is_deleted_is_gone_and_twice_is_safe(subject: Subject) -> None:
    snapshot = subject.snapshot()
    for _ in range(2):
        subject.cloud.delete_volume(snapshot.volume_id)
    assert subject.until(lambda: subject.cloud.volume(snapshot.volume_id) is None)
    assert subject.cloud.volumes() == ()
    for _ in range(2):
        subject.cloud.delete_snapshot(snapshot.snapshot_id)
    assert subject.until(lambda: subject.cloud.snapshot(snapshot.snapshot_id) is None)
    assert subject.cloud.snapshot_of(snapshot.tags[TAG_TOKEN]) is None
    subject.cloud.delete_volume(snapshot.volume_id)
    subject.cloud.delete_snapshot(snapshot.snapshot_id)


def check_a_volume_in_use_is_not_deleted(subject: Subject) -> None:
    volume = subject.attached()
    refuses("in_use", lambda: subject.cloud.delete_volume(volume.volume_id))
    assert subject.seen(volume.volume_id) == volume


def check_what_is_not_there_is_named(subject: Subject) -> None:
    cloud, gone = subject.cloud, CloudSnapshot(NO_SNAPSHOT, SnapshotState.COMPLETED, 2)
    assert cloud.volume(NO_VOLUME) is None
    assert cloud.snapshot(NO_SNAPSHOT) is None
    assert cloud.volume_of(new_token()) is None
    assert cloud.snapshot_of(new_token()) is None
    refuses("snapshot_gone", lambda: subject.begin(new_token(), snapshot=gone))
    refuses("volume_gone", lambda: subject.freeze(new_token(), NO_VOLUME))
    refuses("volume_gone", lambda: cloud.attach(NO_VOLUME, subject.instance, DEVICE))


def check_one_token_makes_one_volume(subject: Subject) -> None:
    token = new_token()
    assert subject.begin(token).volume_id == subject.begin(token).volume_id
    refuses("refused", lambda: subject.begin(token, size_gib=3))
    assert subject.until(lambda: len(subject.cloud.volumes()) == 1)


def check_a_volume_is_where_it_is(subject: Subject) -> None:
    volume = subject.attached()
    here, other = volume.volume_id, subject.volume().volume_id
    refuses(
        "attached_elsewhere", lambda: subject.cloud.attach(here, subject.neighbour, OTHER_DEVICE)
    )
    refuses("device_taken", lambda: subject.cloud.attach(other, subject.instance, DEVICE))
    refuses("wrong_zone", lambda: subject.cloud.attach(other, subject.stranger, DEVICE))
    assert subject.seen(here) == volume
    assert subject.seen(other).attachment is None


def check_a_volume_that_is_bound_shows_it(subject: Subject) -> None:
    volume = subject.attached()
    subject.cloud.bind(volume.volume_id, subject.instance)
    bound = subject.seen(volume.volume_id).attachment
    assert bound is not None
    assert bound.bound


def check_what_is_not_ready_is_not_used(subject: Subject) -> None:
    begun = subject.begin(new_token())
    refuses("not_ready", lambda: subject.cloud.attach(begun.volume_id, subject.instance, DEVICE))
    pending = subject.freeze(new_token(), subject.volume().volume_id)
    refuses("snapshot_not_ready", lambda: subject.begin(new_token(), snapshot=pending))


def check_a_volume_holds_its_snapshot_and_has_a_zone(subject: Subject) -> None:
    snapshot = subject.snapshot()
    refuses("too_small", lambda: subject.begin(new_token(), size_gib=1, snapshot=snapshot))
    refuses("wrong_zone", lambda: subject.begin(new_token(), zone="nowhere-1z"))


def refuses(code: str, act: Callable[[], object]) -> None:
    """It is refused under that code, with the cloud's own words."""
    try:
        act()
    except CloudRefused as refused:
        assert refused.code == code, f"expected {code}, seen {refused.code}: {refused.message}"  # noqa: PT017
        return
    raise AssertionError(f"expected CloudRefused({code})")


def _state(volume: Volume) -> AttachmentState | None:
    return volume.attachment.state if volume.attachment is not None else None


def _complete(snapshot: CloudSnapshot | None) -> bool:
    return snapshot is not None and snapshot.state is SnapshotState.COMPLETED


Check = Callable[[Subject], None]

CHECKS: tuple[Check, ...] = (
    check_a_volume_comes_up_and_is_found_by_id_token_and_list,
    check_lists_are_by_id,
    check_what_is_not_ours_is_seen_by_id_alone,
    check_an_attachment_begins_shows_and_ends,
    check_attaching_twice_is_once,
    check_detaching_what_is_not_attached_there_is_silent,
    check_a_volume_is_bound_to_its_instance_once_it_is_there,
    check_a_snapshot_completes_and_is_found_by_id_token_and_list,
    check_a_volume_is_made_from_a_snapshot_that_outlives_its_own,
    check_what_is_deleted_is_gone_and_twice_is_safe,
    check_a_volume_in_use_is_not_deleted,
    check_what_is_not_there_is_named,
)

REFUSALS: tuple[Check, ...] = (
    check_one_token_makes_one_volume,
    check_a_volume_is_where_it_is,
    check_a_volume_that_is_bound_shows_it,
    check_what_is_not_ready_is_not_used,
    check_a_volume_holds_its_snapshot_and_has_a_zone,
)
