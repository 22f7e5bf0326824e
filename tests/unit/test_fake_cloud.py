"""The account in memory, beyond the contract that it shares with AWS: what it makes happen, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.domain.cloud import AttachmentState, SnapshotState, Volume, VolumeState
from app.errors import CloudRefused, Unavailable
from infra.fakes.account import Delays, Died, Key, Trouble
from infra.fakes.clock import ManualClock
from infra.fakes.cloud import GIB, MIB, FakeCloud

ZONES = {"i-1": "fake-1a", "i-2": "fake-1b"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cloud(clock: ManualClock) -> FakeCloud:
    return FakeCloud(clock, ZONES)


def volume(cloud: FakeCloud, named: str = "t", snapshot_id: str | None = None) -> Volume:
    return cloud.create_volume(
        token=named, zone="fake-1a", size_gib=1, snapshot_id=snapshot_id, tags={}
    )


def seen(cloud: FakeCloud, volume_id: str) -> Volume:
    now = cloud.volume(volume_id)
    assert now is not None
    return now


def test_every_state_lasts_as_long_as_it_is_told_to(clock: ManualClock) -> None:
    cloud = FakeCloud(clock, ZONES, delays=Delays(2.0, 3.0, 4.0, 5.0, 10.0))
    made = volume(cloud).volume_id
    assert seen(cloud, made).state is VolumeState.CREATING
    clock.advance(2)
    assert seen(cloud, made).state is VolumeState.AVAILABLE
    cloud.attach(made, "i-1", "/dev/sdf")
    for seconds, state in ((2, AttachmentState.ATTACHING), (1, AttachmentState.ATTACHED)):
        clock.advance(seconds)
        at = seen(cloud, made).attachment
        assert at is not None
        assert at.state is state
    snapshot_id = cloud.create_snapshot(token="s", volume_id=made, tags={}).snapshot_id
    for percent, state_then in ((50, SnapshotState.PENDING), (100, SnapshotState.COMPLETED)):
        clock.advance(5)
        snapshot = cloud.snapshot(snapshot_id)
        assert snapshot is not None
        assert (snapshot.progress_percent, snapshot.state) == (percent, state_then)
    cloud.detach(made, "i-1")
    clock.advance(3)
    assert seen(cloud, made).state is VolumeState.IN_USE
    clock.advance(1)
    assert seen(cloud, made).attachment is None
    cloud.delete_volume(made)
    assert seen(cloud, made).state is VolumeState.DELETING
    clock.advance(5)
    assert cloud.volume(made) is None


def test_a_volume_from_a_snapshot_has_its_bytes_as_time_passes(
    cloud: FakeCloud, clock: ManualClock
) -> None:
    cloud.plant("snap-1")
    cloud.rules.lazy_rate_mib = 100.0
    fresh, lazy = volume(cloud, "a").volume_id, volume(cloud, "b", "snap-1").volume_id
    assert (cloud.loaded_bytes(fresh), cloud.loaded_bytes(lazy)) == (GIB, 0)
    clock.advance(2.0 + 3)  # it is being made for two seconds
    assert cloud.loaded_bytes(lazy) == 300 * MIB
    clock.advance(100)
    assert cloud.loaded_bytes(lazy) == GIB


def test_a_token_comes_again_with_the_same_arguments_or_not_at_all(
    cloud: FakeCloud, clock: ManualClock
) -> None:
    made = volume(cloud)
    assert volume(cloud).volume_id == made.volume_id
    with pytest.raises(CloudRefused, match="other arguments"):
        cloud.create_volume(token="t", zone="fake-1b", size_gib=1, snapshot_id=None, tags={})
    clock.advance(2)
    cloud.delete_volume(made.volume_id)
    clock.advance(2)
    with pytest.raises(CloudRefused, match="is gone"):
        volume(cloud)


@pytest.mark.parametrize(
    ("how", "error", "done"),
    [
        (Trouble.REFUSED, CloudRefused, False),
        (Trouble.THROTTLED, Unavailable, False),
        (Trouble.LOST, Unavailable, True),
        (Trouble.DIED, Died, True),
    ],
)
def test_a_call_fails_before_or_after_it_is_done(
    cloud: FakeCloud, how: Trouble, error: type[BaseException], done: bool
) -> None:
    cloud.fail_at(2, how)
    assert cloud.volumes() == ()
    with pytest.raises(error):
        volume(cloud)
    assert len(cloud.volumes()) == done
    volume(cloud)
    assert len(cloud.volumes()) == 1
    assert cloud.calls == ["volumes", "create_volume", "volumes", "create_volume", "volumes"]


def test_what_was_made_a_moment_ago_is_not_listed_yet(clock: ManualClock) -> None:
    cloud = FakeCloud(clock, ZONES, delays=Delays(listed_s=6.0))
    made = volume(cloud)
    for look in _looks(cloud, made.volume_id):
        assert not look()
    clock.advance(6)
    for look in _looks(cloud, made.volume_id):
        assert look()


def _looks(cloud: FakeCloud, volume_id: str) -> tuple[Callable[[], object], ...]:
    return (lambda: cloud.volume(volume_id), lambda: cloud.volume_of("t"), cloud.volumes)


@pytest.mark.parametrize("how", [Key.ERROR, Key.VANISHES])
def test_a_key_that_may_not_be_used_shows_after_the_answer(
    cloud: FakeCloud, clock: ManualClock, how: Key
) -> None:
    cloud.plant("snap-1")
    cloud.withhold_key("snap-1", how)
    made = volume(cloud, snapshot_id="snap-1").volume_id
    assert seen(cloud, made).state is VolumeState.CREATING
    clock.advance(2)
    after = cloud.volume(made)
    assert (after and after.state) == (VolumeState.ERROR if how is Key.ERROR else None)


def test_an_instance_that_ends_takes_along_what_is_bound_to_it(
    cloud: FakeCloud, clock: ManualClock
) -> None:
    bound, free = volume(cloud, "a").volume_id, volume(cloud, "b").volume_id
    clock.advance(2)
    for volume_id, device in ((bound, "/dev/sdf"), (free, "/dev/sdg")):
        cloud.attach(volume_id, "i-1", device)
    clock.advance(3)
    cloud.bind(bound, "i-1")
    cloud.terminate("i-1")
    assert [each.volume_id for each in cloud.volumes()] == [free]
    assert seen(cloud, free).state is VolumeState.AVAILABLE


def test_deployments_do_not_see_each_others(cloud: FakeCloud) -> None:
    cloud.plant("snap-other", tags={"promigence:deployment": "other"})
    assert cloud.snapshots() == ()
    assert cloud.snapshot("snap-other") is not None
