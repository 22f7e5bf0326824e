"""What of a bundle on EBS cannot be had: a fault of its own name each, what was seen, and nothing of it left behind."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from app.domain.cloud import Purpose
from app.errors import CloudRefused, EnvironmentFault, FailureKind
from infra import manifest
from infra.ebs.volumes import ATTACH_S, DEVICE_NAMES, DEVICE_S
from infra.fakes.account import Key
from infra.fakes.cloud import FakeCloud
from tests.contract.ebs_rig import ZONE, Rig, reason_of


def refused(rig: Rig, host: str = "i-2") -> EnvironmentFault:
    """What mounting on another host raises; nothing of it is left, and the first host has its own still."""
    with pytest.raises(EnvironmentFault) as found:
        rig.process(host).mount(rig.bundle_id)
    rig.settle()
    assert [row.host_id for row in rig.living() if row.purpose is Purpose.READ] == ["i-1"]
    assert len(rig.volumes()) == 1
    assert not any(point.is_relative_to(rig.folder / host) for point in rig.zone.mounts)
    assert rig.process(host).mounted() == ()
    assert rig.process("i-1").open(rig.bundle_id).state.read_bytes() == b"state"
    return found.value


def kept(rig: Rig) -> str:
    rig.stored()
    (snapshot_id,) = rig.snapshots()
    return snapshot_id


def test_a_snapshot_that_is_gone(rig: Rig) -> None:
    snapshot_id = kept(rig)
    rig.cloud.lose(snapshot_id)
    fault = refused(rig)
    assert reason_of(fault) == "snapshot_gone"
    assert fault.evidence["aws_code"] == "InvalidSnapshot.NotFound"
    assert fault.evidence["request_id"] == "fake"
    assert fault.evidence["snapshot_id"] == snapshot_id


def test_a_snapshot_of_another_account_has_to_be_shared(rig: Rig) -> None:
    snapshot_id = kept(rig)
    rig.cloud.give_away(snapshot_id, "444455556666", shared=False)
    fault = refused(rig)
    assert reason_of(fault) == "snapshot_denied"
    assert "444455556666" in fault.message
    rig.cloud.give_away(snapshot_id, "444455556666", shared=True)
    rig.process("i-2").mount(rig.bundle_id)
    rig.check_warm("i-1", "i-2")


def test_a_snapshot_of_another_region_is_not_there(rig: Rig) -> None:
    snapshot_id = kept(rig)
    there = rig.cloud
    rig.cloud = FakeCloud(rig.clock, {"i-2": ZONE}, region="fake-2", first_id=500)
    with pytest.raises(EnvironmentFault, match=f"{snapshot_id} in fake-2") as found:
        rig.process("i-2").mount(rig.bundle_id)
    assert reason_of(found.value) == "snapshot_gone"
    assert rig.cloud.volumes() == ()
    rig.cloud = there
    rig.check_warm("i-1")


@pytest.mark.parametrize("how", [Key.REFUSED, Key.ERROR, Key.VANISHES])
def test_a_key_that_the_host_may_not_use(rig: Rig, how: Key) -> None:
    snapshot_id = kept(rig)
    rig.cloud.withhold_key(snapshot_id, how)
    fault = refused(rig)
    assert reason_of(fault) == "key_denied"
    assert fault.evidence["snapshot_id"] == snapshot_id
    if how is not Key.REFUSED:  # AWS has said yes before
        ends = {
            Key.ERROR: "it went to the state `error`",
            Key.VANISHES: "it vanished after it was made",
        }
        assert fault.evidence["seen"] == ends[how]


def test_a_volume_that_never_attaches(rig: Rig) -> None:
    rig.stored()
    rig.cloud.rules.never_attaches = True
    fault = refused(rig)
    assert reason_of(fault) == "never_attached"
    assert fault.evidence["attachment"] == "attaching"
    assert fault.evidence["waited_s"] == ATTACH_S
    assert fault.evidence["asked_device"] == "/dev/sdf"


def test_a_device_that_appears_late(rig: Rig) -> None:
    rig.zone.late_s = DEVICE_S - 10
    rig.stored()
    rig.check_warm("i-1")


def test_a_device_that_never_appears(rig: Rig) -> None:
    rig.stored()
    rig.zone.hidden = True
    fault = refused(rig)
    assert reason_of(fault) == "device_missing"
    assert fault.evidence["waited_s"] == DEVICE_S
    assert str(fault.evidence["volume_id"]).startswith("vol-")


def test_a_device_of_another_size(rig: Rig) -> None:
    rig.stored()
    rig.zone.size_bytes = 512
    fault = refused(rig)
    assert reason_of(fault) == "device_differs"
    assert (fault.evidence["seen_bytes"], fault.evidence["expected_bytes"]) == (512, 1 << 30)


def rewritten(rig: Rig, name: str, change: Callable[[str], str]) -> None:
    """The same snapshot, with another text in one of its files."""
    file = rig.zone.bytes_of(kept(rig)) / "files" / name
    file.write_text(change(file.read_text()))


def test_a_manifest_of_another_version(rig: Rig) -> None:
    def later(text: str) -> str:
        raw = {key: value for key, value in json.loads(text).items() if key != "sha256"}
        return manifest.sealed({**raw, "version": manifest.VERSION + 1})

    rewritten(rig, manifest.NAME, later)
    fault = refused(rig)
    assert reason_of(fault) == "wrong_version"
    assert fault.evidence["version"] == manifest.VERSION + 1


def test_bytes_that_changed_in_the_store(rig: Rig) -> None:
    rewritten(rig, "state.bin", lambda text: text.replace("s", "S", 1))
    fault = refused(rig)
    assert fault.kind is FailureKind.SNAPSHOT_CORRUPT
    assert (fault.evidence["file"], fault.evidence["chunk"]) == ("state.bin", 0)


def test_what_was_checked_before_it_was_given_up_is_checked_again(rig: Rig) -> None:
    snapshot_id = kept(rig)
    rig.process().read(rig.bundle_id)
    assert rig.process().evict(rig.bundle_id)
    state = rig.zone.bytes_of(snapshot_id) / "files" / "state.bin"
    state.write_bytes(b"statf")
    with pytest.raises(EnvironmentFault) as found:
        rig.process().mount(rig.bundle_id)
    assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT
    state.write_bytes(b"state")
    rig.process().mount(rig.bundle_id)
    rig.check_warm("i-1")


def test_a_snapshot_of_another_bundle(rig: Rig) -> None:
    identity = rig.zone.bytes_of(kept(rig)) / "identity"
    identity.write_text("12345678-1234-5678-1234-567812345678")
    fault = refused(rig)
    assert reason_of(fault) == "wrong_bundle"
    assert fault.evidence["seen_uuid"] == "12345678-1234-5678-1234-567812345678"


@pytest.mark.parametrize("limit", ["attachments_max", "volumes_max"])
def test_a_limit_of_the_account(rig: Rig, limit: str) -> None:
    rig.stored()
    setattr(rig.cloud.rules, limit, 0)
    assert reason_of(refused(rig)) == "limit_exceeded"


def test_a_device_name_that_is_taken_is_not_the_end(rig: Rig) -> None:
    rig.stored()
    for name in DEVICE_NAMES[:12]:
        rig.cloud.hold_device("i-2", name)
    rig.process("i-2").mount(rig.bundle_id)
    names = {v.attachment.device for v in rig.cloud.volumes() if v.attachment is not None}
    assert names == {"/dev/sdf", DEVICE_NAMES[12]}
    assert DEVICE_NAMES[12].startswith("/dev/xvd")


@pytest.mark.parametrize("verb", ["create_volume", "attach", "bind"])
def test_what_the_role_may_not_do(rig: Rig, verb: str) -> None:
    rig.stored()
    rig.cloud.rules.denied.add(verb)
    fault = refused(rig)
    assert reason_of(fault) == "denied"
    assert verb in fault.message


def test_a_role_that_may_not_delete_is_told_at_once_and_what_stays_has_its_row(rig: Rig) -> None:
    rig.stored()
    rig.cloud.rules.denied |= {"delete_volume", "delete_snapshot"}
    with pytest.raises(CloudRefused, match="delete_snapshot"):
        rig.process().delete(rig.bundle_id)
    assert rig.bundle_id in rig.process().known()
    rig.cloud.rules.denied.clear()
    rig.process().delete(rig.bundle_id)
    rig.check_nothing_left()


def test_what_is_stored_nowhere(rig: Rig) -> None:
    for act, reason in (
        (lambda: rig.process().mount(rig.bundle_id), "not_stored"),
        (lambda: rig.process().store(rig.bundle_id), "not_staged"),
    ):
        with pytest.raises(EnvironmentFault) as found:
            act()
        assert reason_of(found.value) == reason
    assert rig.cloud.calls == []
    with pytest.raises(EnvironmentFault):
        rig.process().open(rig.bundle_id)
