"""What goes out to EC2 and what is made of its answers, with nothing on the wire."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.domain.cloud import (
    TAG_DEPLOYMENT,
    TAG_TOKEN,
    Attachment,
    AttachmentState,
    CloudSnapshot,
    SnapshotState,
    Volume,
    VolumeState,
)
from app.errors import CloudRefused, Unavailable
from infra.aws.ec2 import PAUSES_S, Ec2Cloud
from infra.aws.session import ATTEMPTS
from tests.unit.ec2_wire import (
    SNAPSHOT,
    VOLUME,
    Wire,
    Wired,
    snapshot_xml,
    snapshots_xml,
    volume_xml,
    volumes_xml,
    without_noise,
)

INSTANCE, OTHER = "i-0123456789abcdef0", "i-0fedcba9876543210"
# When all of them were made.
AT_NS = 1_782_900_000_000_000_000
SECRET = "Zm9yIG5vYm9keQ"
# How long the cloud would have waited between attempts.
PAUSED: list[float] = []


@pytest.fixture(scope="module")
def make() -> Iterator[Callable[..., Ec2Cloud]]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9/of-somebody-else")
        yield lambda **more: Ec2Cloud(Wired("eu-west-1"), "dep", PAUSED.append, **more)


@pytest.fixture(scope="module")
def cloud(make: Callable[..., Ec2Cloud]) -> Ec2Cloud:
    return make(kms_key="alias/ours", volume_rate_mib=200)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    monkeypatch.setattr(Wired, "wire", Wire())
    PAUSED.clear()
    yield Wired.wire
    assert Wired.wire.answers == [], "every answer was asked for"


def test_an_empty_volume_is_encrypted_tagged_and_asked_for_under_its_token(
    cloud: Ec2Cloud, wire: Wire
) -> None:
    wire.says(f"<R>{volume_xml('creating')}</R>")
    made = cloud.create_volume(
        token="tok_1",
        zone="eu-west-1a",
        size_gib=8,
        snapshot_id=None,
        tags={"promigence:owner": "h"},
    )
    assert wire.urls == ["https://ec2.eu-west-1.amazonaws.com/"]
    assert made == Volume(VOLUME, VolumeState.CREATING, "eu-west-1a", 8, made_wall_ns=AT_NS)
    (sent,) = wire.sent
    assert without_noise(sent) == {
        "Action": "CreateVolume",
        "ClientToken": "tok_1",
        "AvailabilityZone": "eu-west-1a",
        "Size": "8",
        "VolumeType": "gp3",
        "Encrypted": "true",
        "KmsKeyId": "alias/ours",
        "TagSpecification.1.ResourceType": "volume",
        "TagSpecification.1.Tag.1.Key": TAG_DEPLOYMENT,
        "TagSpecification.1.Tag.1.Value": "dep",
        "TagSpecification.1.Tag.2.Key": "promigence:owner",
        "TagSpecification.1.Tag.2.Value": "h",
        "TagSpecification.1.Tag.3.Key": TAG_TOKEN,
        "TagSpecification.1.Tag.3.Value": "tok_1",
    }


def test_no_tag_of_a_caller_hides_whose_it_is(cloud: Ec2Cloud, wire: Wire) -> None:
    wire.says(f"<R>{snapshot_xml('pending', progress='')}</R>")
    others = {TAG_DEPLOYMENT: "other", TAG_TOKEN: "other"}
    cloud.create_snapshot(token="tok_1", volume_id=VOLUME, tags=others)
    assert "other" not in wire.sent[0].values()


def test_a_volume_from_a_snapshot_keeps_its_key_and_is_filled_at_the_rate(
    cloud: Ec2Cloud, wire: Wire
) -> None:
    wire.says(f"<R>{volume_xml('creating', snapshot=SNAPSHOT)}</R>")
    made = cloud.create_volume(
        token="tok_1", zone="eu-west-1a", size_gib=8, snapshot_id=SNAPSHOT, tags={}
    )
    assert made.snapshot_id == SNAPSHOT
    (sent,) = wire.sent
    assert (sent["SnapshotId"], sent["VolumeInitializationRate"]) == (SNAPSHOT, "200")
    assert "KmsKeyId" not in sent


def test_without_a_key_and_a_rate_neither_is_sent(
    make: Callable[..., Ec2Cloud], wire: Wire
) -> None:
    for snapshot_id in (None, SNAPSHOT):
        wire.says(f"<R>{volume_xml('creating')}</R>")
        make().create_volume(token="t", zone="z", size_gib=8, snapshot_id=snapshot_id, tags={})
    assert not {"KmsKeyId", "VolumeInitializationRate"} & {
        name for sent in wire.sent for name in sent
    }


def test_a_failing_service_is_asked_a_bounded_number_of_times_under_one_token(
    cloud: Ec2Cloud, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", PAUSED.append)
    for _ in range(ATTEMPTS):
        wire.refuses("InternalError", status=500)
    with pytest.raises(Unavailable) as away:
        cloud.create_volume(token="tok_1", zone="z", size_gib=8, snapshot_id=None, tags={})
    assert away.value.code == "cloud_away"
    assert [sent["ClientToken"] for sent in wire.sent] == ["tok_1"] * ATTEMPTS
    assert len(PAUSED) == ATTEMPTS - 1
    assert max(PAUSED) < 1


def test_a_snapshot_whose_answer_was_lost_is_not_asked_for_again(
    cloud: Ec2Cloud, wire: Wire
) -> None:
    wire.refuses("InternalError", status=500)
    with pytest.raises(Unavailable):
        cloud.create_snapshot(token="tok_1", volume_id=VOLUME, tags={})
    assert (wire.actions, PAUSED) == (["CreateSnapshot"], [])


def test_a_throttled_snapshot_is_asked_for_again_after_a_pause(cloud: Ec2Cloud, wire: Wire) -> None:
    wire.refuses("RequestLimitExceeded", status=503)
    wire.says(f"<R>{snapshot_xml('pending', progress='')}</R>")
    made = cloud.create_snapshot(token="tok_1", volume_id=VOLUME, tags={})
    assert made == CloudSnapshot(
        SNAPSHOT, SnapshotState.PENDING, 8, VOLUME, "111122223333", made_wall_ns=AT_NS
    )
    assert [PAUSES_S[0]] == PAUSED
    assert wire.sent[1]["TagSpecification.1.Tag.2.Value"] == "tok_1"


def test_a_snapshot_that_stays_throttled_is_given_up(cloud: Ec2Cloud, wire: Wire) -> None:
    for _ in range(len(PAUSES_S) + 1):
        wire.refuses("SnapshotCreationPerVolumeRateExceeded")
    with pytest.raises(Unavailable):
        cloud.create_snapshot(token="tok_1", volume_id=VOLUME, tags={})
    assert list(PAUSES_S) == PAUSED


@pytest.mark.parametrize("state", ["attaching", "attached"])
def test_an_attachment_that_was_heard_the_first_time_is_no_conflict(
    cloud: Ec2Cloud, wire: Wire, state: str
) -> None:
    wire.refuses("VolumeInUse", f"{VOLUME} is already attached to an instance")
    wire.says(volumes_xml(volume_xml("in-use", at=(INSTANCE, state))))
    cloud.attach(VOLUME, INSTANCE, "/dev/sdf")
    assert wire.actions == ["AttachVolume", "DescribeVolumes"]


@pytest.mark.parametrize(
    "at", [(OTHER, "attached"), (INSTANCE, "detaching"), (INSTANCE, "busy"), None]
)
def test_an_attachment_anywhere_else_or_on_its_way_out_is(
    cloud: Ec2Cloud, wire: Wire, at: tuple[str, str] | None
) -> None:
    wire.refuses("VolumeInUse", f"{VOLUME} is already attached to an instance")
    wire.says(volumes_xml(volume_xml("in-use", at=at)))
    with pytest.raises(CloudRefused) as refused:
        cloud.attach(VOLUME, INSTANCE, "/dev/sdf")
    assert refused.value.code == "attached_elsewhere"


@pytest.mark.parametrize(
    ("at", "silent"),
    [
        (None, True),
        ((OTHER, "attached"), True),
        ((INSTANCE, "detaching"), True),
        ((INSTANCE, "detached"), True),
        ((INSTANCE, "attached"), False),
        ((INSTANCE, "busy"), False),
    ],
)
def test_a_refused_detachment_is_silent_where_nothing_is_attached(
    cloud: Ec2Cloud, wire: Wire, at: tuple[str, str] | None, silent: bool
) -> None:
    wire.refuses("IncorrectState", f"Volume '{VOLUME}' is in the 'available' state.")
    wire.says(volumes_xml(volume_xml("available", at=at)))
    if silent:
        cloud.detach(VOLUME, INSTANCE)
        return
    with pytest.raises(CloudRefused):
        cloud.detach(VOLUME, INSTANCE)


def test_a_volume_is_bound_by_the_device_that_it_was_asked_for_as(
    cloud: Ec2Cloud, wire: Wire
) -> None:
    wire.says(volumes_xml(volume_xml("in-use", at=(INSTANCE, "attached"))))
    wire.says("<R><return>true</return></R>")
    cloud.bind(VOLUME, INSTANCE)
    assert without_noise(wire.sent[1]) == {
        "Action": "ModifyInstanceAttribute",
        "InstanceId": INSTANCE,
        "BlockDeviceMapping.1.DeviceName": "/dev/sdf",
        "BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true",
    }


@pytest.mark.parametrize("at", [(INSTANCE, "attaching"), (OTHER, "attached"), None])
def test_a_volume_that_is_not_there_yet_is_not_bound(
    cloud: Ec2Cloud, wire: Wire, at: tuple[str, str] | None
) -> None:
    wire.says(volumes_xml(volume_xml("in-use", at=at)))
    with pytest.raises(CloudRefused) as refused:
        cloud.bind(VOLUME, INSTANCE)
    assert refused.value.code == "not_ready"
    assert wire.actions == ["DescribeVolumes"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda cloud: cloud.volume(VOLUME),
        lambda cloud: cloud.snapshot(SNAPSHOT),
        lambda cloud: cloud.volumes(),
        lambda cloud: cloud.snapshots(),
        lambda cloud: cloud.delete_volume(VOLUME),
        lambda cloud: cloud.delete_snapshot(SNAPSHOT),
    ],
    ids=["volume", "snapshot", "volumes", "snapshots", "delete_volume", "delete_snapshot"],
)
def test_what_the_role_may_not_do_is_never_taken_for_nothing(
    cloud: Ec2Cloud, wire: Wire, ask: Callable[[Ec2Cloud], object]
) -> None:
    wire.refuses("UnauthorizedOperation", "You are not authorized to perform this operation.")
    with pytest.raises(CloudRefused) as refused:
        ask(cloud)
    assert refused.value.code == "denied"


def test_lists_are_read_to_their_last_page_and_hold_nothing_deleted(
    cloud: Ec2Cloud, wire: Wire
) -> None:
    ids = [f"vol-{n:017x}" for n in (3, 1, 2)]
    wire.says(volumes_xml(volume_xml("available", volume_id=ids[0]), token="page2"))
    wire.says(volumes_xml(volume_xml("deleted", volume_id=ids[1]), token="page3"))
    wire.says(volumes_xml(volume_xml("available", volume_id=ids[2])))
    assert [volume.volume_id for volume in cloud.volumes()] == [ids[2], ids[0]]
    assert [sent.get("NextToken") for sent in wire.sent] == [None, "page2", "page3"]
    assert {sent["Filter.1.Name"] for sent in wire.sent} == {f"tag:{TAG_DEPLOYMENT}"}
    assert {sent["Filter.1.Value.1"] for sent in wire.sent} == {"dep"}


def test_a_snapshot_is_looked_for_among_our_own_by_its_token(cloud: Ec2Cloud, wire: Wire) -> None:
    wire.says(snapshots_xml(snapshot_xml("error", progress="42%", message="key is gone")))
    found = cloud.snapshot_of("tok_1")
    assert found is not None
    assert (found.state, found.progress_percent) == (SnapshotState.ERROR, 42)
    assert found.message == "key is gone"
    (sent,) = wire.sent
    assert (sent["Owner.1"], sent["Filter.2.Value.1"]) == ("self", "tok_1")


def test_a_volume_shows_where_it_is(cloud: Ec2Cloud, wire: Wire) -> None:
    wire.says(volumes_xml(volume_xml("in-use", at=(INSTANCE, "busy"), bound=True)))
    seen = cloud.volume(VOLUME)
    assert seen is not None
    assert seen.attachment == Attachment(INSTANCE, "/dev/sdf", AttachmentState.BUSY, bound=True)


def test_a_deleted_volume_is_none(cloud: Ec2Cloud, wire: Wire) -> None:
    wire.says(volumes_xml(volume_xml("deleted")))
    assert cloud.volume(VOLUME) is None


@pytest.mark.parametrize(
    "shown",
    [
        {"volume_id": "vol-0123; reboot"},
        {"volume_id": "snap-0123456789abcdef0"},
        {"volume_id": "../../etc"},
        {"volume_id": ""},
        {"at": ("host0", "attached")},
        {"at": (INSTANCE, "melting")},
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(
    cloud: Ec2Cloud, wire: Wire, shown: dict[str, Any]
) -> None:
    wire.says(volumes_xml(volume_xml("in-use", **shown)))
    with pytest.raises(CloudRefused) as refused:
        cloud.volume(VOLUME)
    assert refused.value.code == "refused"


def test_a_state_that_nobody_knows_is_refused(cloud: Ec2Cloud, wire: Wire) -> None:
    wire.says(volumes_xml(volume_xml("molten")))
    with pytest.raises(CloudRefused):
        cloud.volume(VOLUME)


def test_an_answer_of_somebody_else_is_no_answer(cloud: Ec2Cloud, wire: Wire) -> None:
    wire.says("<html><body>Sign in to this network</body>")
    with pytest.raises(Unavailable) as away:
        cloud.volume(VOLUME)
    assert away.value.code == "cloud_away"


def test_no_credential_reaches_a_log(
    cloud: Ec2Cloud, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wire.says(f"<R>{volume_xml('creating')}</R>")
    cloud.create_volume(token="tok_1", zone="z", size_gib=8, snapshot_id=None, tags={})
    assert "AKIDEXAMPLE" not in caplog.text
    assert SECRET not in caplog.text
