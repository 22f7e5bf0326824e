"""Bundles on EBS: what is asked of the cloud, what each refusal is called, and that nothing of it is left."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.domain.cloud import Purpose
from app.domain.machine import Shape
from app.errors import EnvironmentFault, FailureKind
from infra import conformance
from infra.conformance import Subject
from infra.ebs.bundles import SPARE_S
from infra.fakes.account import Delays, Died, Key, Trouble
from infra.fakes.guest import FakeGuest
from infra.fakes.machines import FakeImages, FakeMachines
from infra.fakes.world import World
from tests.contract.ebs_rig import HOSTS, Rig, reason_of


@pytest.mark.parametrize(
    "check",
    [
        conformance.check_bundles_are_kept_and_deleted,
        conformance.check_a_bundle_is_given_up_where_it_can_be_had_again,
        conformance.check_the_bundle_that_was_used_last_is_last,
    ],
    ids=lambda check: check.__name__.removeprefix("check_"),
)
def test_they_keep_the_contract_of_bundles(rig: Rig, check: Callable[[Subject], None]) -> None:
    world = World(rig.clock)
    rig.stage()
    bundles = rig.process()
    subject = Subject(
        machines=FakeMachines(world, "i-1"),
        guest=FakeGuest(world),
        bundles=bundles,
        clock=rig.clock,
        image=FakeImages().boot_image("debian-12"),
        shape=Shape(1, 128, 1),
        say=lambda *_: (),
        until=lambda *_: True,
        bundle=bundles.store(rig.bundle_id),
    )
    check(subject)
    subject.clean_up()
    rig.check_nothing_left()
    assert rig.volumes() == rig.snapshots() == set()


def test_a_stored_bundle_is_mounted_on_any_host(rig: Rig) -> None:
    rig.stored()
    rig.check_warm("i-1")
    for host in ("i-2", "i-3", "i-2"):
        rig.process(host).mount(rig.bundle_id)
    rig.check_warm(*HOSTS)
    assert rig.cloud.calls.count("create_snapshot") == 1


def test_a_mounted_volume_that_does_not_hold_is_given_up_and_the_next_mount_has_another(
    rig: Rig,
) -> None:
    rig.stage(memory=bytes(34 << 20))
    rig.process().store(rig.bundle_id)
    bundles = rig.process("i-2")
    bundles.mount(rig.bundle_id)
    (spoilt,) = (v.volume_id for v in rig.cloud.volumes() if v.tags["promigence:owner"] == "i-2")
    with (rig.zone.bytes_of(spoilt) / "files" / "memory.img").open("r+b") as file:
        file.seek((34 << 20) - 1)
        file.write(b"x")
    for act in (bundles.read, bundles.mount):
        with pytest.raises(EnvironmentFault) as found:
            act(rig.bundle_id)
        assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT
    rig.settle()
    assert spoilt not in rig.volumes()
    bundles.mount(rig.bundle_id)
    rig.check_warm("i-1", "i-2")


def test_everything_of_it_says_whose_it_is(rig: Rig) -> None:
    rig.stored()
    (volume,), (snapshot,) = rig.cloud.volumes(), rig.cloud.snapshots()
    rows = {row.cloud_id: row for row in rig.living()}
    for seen, owner in ((volume, "i-1"), (snapshot, rig.bundle_id)):
        cloud_id = getattr(seen, "volume_id" if seen is volume else "snapshot_id")
        assert seen.tags["promigence:token"] == rows[cloud_id].token
        assert seen.tags["promigence:bundle"] == rig.bundle_id
        assert seen.tags["promigence:owner"] == owner
        assert int(seen.tags["promigence:deadline"]) > 0


# Storing


def not_stored(rig: Rig, memory: bytes = b"memory") -> EnvironmentFault:
    """What storing raises; nothing of it is left, and what is staged is as it was."""
    staged = rig.stage(memory=memory)
    before = {file.name: file.read_bytes() for file in staged.iterdir()}
    with pytest.raises(EnvironmentFault) as found:
        rig.process().store(rig.bundle_id)
    rig.check_nothing_left()
    assert {file.name: file.read_bytes() for file in staged.iterdir()} == before
    return found.value


def test_a_staged_bundle_that_does_not_hold_is_not_stored(rig: Rig) -> None:
    (rig.stage() / "state.bin").write_bytes(b"statf")
    with pytest.raises(EnvironmentFault) as found:
        rig.process().store(rig.bundle_id)
    assert found.value.kind is FailureKind.SNAPSHOT_CORRUPT
    assert "create_volume" not in rig.cloud.calls


def test_every_chunk_that_comes_back_is_checked_before_it_is_stored(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, large = rig.zone.snapshotted, bytes(34 << 20)

    def spoilt(snapshot_id: str, volume_id: str) -> None:
        keep(snapshot_id, volume_id)
        memory = rig.zone.bytes_of(snapshot_id) / "files" / "memory.img"
        with memory.open("r+b") as file:  # beyond what a first fork needs
            file.seek(len(large) - 1)
            file.write(b"x")

    monkeypatch.setattr(rig.zone, "snapshotted", spoilt)
    fault = not_stored(rig, large)
    assert fault.kind is FailureKind.SNAPSHOT_CORRUPT
    assert (fault.evidence["file"], fault.evidence["chunk"]) == ("memory.img", 16)
    monkeypatch.undo()
    rig.process().store(rig.bundle_id)
    rig.check_warm("i-1")


def test_the_id_that_the_cloud_answers_with_is_what_is_waited_for(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search by tags may not have what was made a minute ago."""
    monkeypatch.setattr(rig.cloud, "snapshot_of", lambda _: None)
    rig.stored()
    rig.check_warm("i-1")
    assert rig.cloud.calls.count("create_snapshot") == 1


def test_a_snapshot_that_the_cloud_cannot_complete(rig: Rig) -> None:
    rig.cloud.rules.snapshots_fail = True
    fault = not_stored(rig)
    assert reason_of(fault) == "snapshot_failed"
    assert fault.evidence["message_of_cloud"] == "it could not be completed"


@pytest.mark.parametrize("how", [Key.ERROR, Key.VANISHES])
def test_a_key_of_the_settings_that_may_not_be_used(rig: Rig, how: Key) -> None:
    rig.cloud.rules.key = how
    assert reason_of(not_stored(rig)) == "key_denied"


def test_a_volume_that_is_not_new_is_never_written_over(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rig.disks["i-1"], "is_blank", lambda _: False)
    monkeypatch.setattr(rig.disks["i-1"], "make", pytest.fail)
    assert reason_of(not_stored(rig)) == "not_blank"


def test_a_bundle_that_does_not_fit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("infra.ebs.copying.copy", full)
    fault = not_stored(rig)
    assert reason_of(fault) == "disk_failed"
    assert "No space left" in fault.message


def test_a_store_that_died_while_its_snapshot_was_taken_goes_on_with_it(rig: Rig) -> None:
    rig.stage()
    rig.cloud.fail_next("create_snapshot", Trouble.DIED)
    with pytest.raises(Died):
        rig.process().store(rig.bundle_id)
    rig.process().store(rig.bundle_id)
    rig.check_warm("i-1")
    assert rig.cloud.calls.count("create_snapshot") == 1
    assert rig.cloud.calls.count("create_volume") == 2


@pytest.mark.parametrize("how", [Trouble.LOST, Trouble.DIED])
@pytest.mark.parametrize("verb", ["create_volume", "create_snapshot"])
def test_what_the_cloud_does_not_list_yet_is_not_lost(rig: Rig, verb: str, how: Trouble) -> None:
    """AWS shows what it made some seconds later: an answer that is lost then names nothing that could be found."""
    late = Rig(rig.folder / "late", rig.clock, rig.resources, 2, Delays(listed_s=6.0))
    late.stage()
    late.cloud.fail_next(verb, how)
    if how is Trouble.DIED:
        with pytest.raises(Died):
            late.process().store(late.bundle_id)
    late.process().store(late.bundle_id)
    late.check_warm("i-1")


# Given up


def test_what_a_machine_runs_on_is_not_given_up(rig: Rig) -> None:
    rig.stored()
    point = rig.folder / "i-1" / "bundles" / "stored" / rig.bundle_id
    rig.disks["i-1"].busy.add(point)
    bundles = rig.process()
    assert not bundles.evict(rig.bundle_id)
    bundles.release()
    rig.check_warm("i-1")
    bundles.delete(rig.bundle_id)
    assert bundles.known() == (rig.bundle_id,)
    assert bundles.open(rig.bundle_id).state.read_bytes() == b"state"
    assert rig.snapshots() == set()
    rig.disks["i-1"].busy.clear()
    bundles.delete(rig.bundle_id)
    rig.check_nothing_left()
    assert bundles.known() == ()


def test_what_is_on_its_way_out_is_not_mounted_again(rig: Rig) -> None:
    rig.stored()
    (before,) = rig.volumes()
    rig.cloud.fail_next("detach", Trouble.DIED)
    with pytest.raises(Died):
        rig.process().evict(rig.bundle_id)
    rig.process().mount(rig.bundle_id)
    rig.check_warm("i-1")
    assert before not in rig.volumes()


def test_the_only_copy_is_not_given_up(rig: Rig) -> None:
    rig.stored()
    (keep,) = (row for row in rig.living() if row.purpose is Purpose.KEEP)
    rig.cloud.lose(str(keep.cloud_id))
    rig.resources.gone(keep.token)
    assert not rig.process().evict(rig.bundle_id)
    assert rig.process().mounted() == (rig.bundle_id,)
    rig.stage("i-2")
    assert not rig.process("i-2").evict(rig.bundle_id)


def test_a_staged_bundle_is_warm_and_needs_no_cloud(rig: Rig) -> None:
    staged = rig.stage()
    bundles = rig.process()
    bundles.mount(rig.bundle_id)
    assert bundles.open(rig.bundle_id).directory == staged
    assert bundles.mounted() == (rig.bundle_id,)
    bundles.delete(rig.bundle_id)
    assert bundles.known() == ()
    assert rig.cloud.calls == []


def test_after_a_reboot_it_is_not_warm_and_its_volume_is_mounted_again(rig: Rig) -> None:
    rig.stored()
    before = rig.volumes()
    rig.reboot()
    bundles = rig.process()
    assert bundles.mounted() == ()
    with pytest.raises(EnvironmentFault) as found:
        bundles.open(rig.bundle_id)
    assert found.value.kind is FailureKind.SNAPSHOT_UNAVAILABLE
    bundles.mount(rig.bundle_id)
    rig.check_warm("i-1")
    assert rig.volumes() == before


def test_a_volume_that_nobody_mounts_again_is_given_up_after_a_while(rig: Rig) -> None:
    rig.stored()
    rig.reboot()
    bundles = rig.process()
    bundles.tidy()
    rig.settle()
    assert len(rig.volumes()) == 1
    rig.clock.advance(SPARE_S)
    bundles.tidy()
    rig.settle()
    assert rig.volumes() == set()
    assert [row.purpose for row in rig.living()] == [Purpose.KEEP]


def test_a_volume_that_somebody_deleted_is_made_anew(rig: Rig) -> None:
    rig.stored()
    rig.reboot()
    (volume_id,) = rig.volumes()
    rig.cloud.lose(volume_id)
    rig.process().mount(rig.bundle_id)
    rig.check_warm("i-1")
    assert volume_id not in rig.volumes()


def test_a_mount_that_no_row_knows_makes_room_unless_it_is_used(rig: Rig) -> None:
    """As after a database was restored from a copy of yesterday."""
    rig.stored()
    (lost,) = rig.volumes()
    (row,) = (row for row in rig.living() if row.purpose is Purpose.READ)
    rig.resources.gone(row.token)
    (point,) = rig.zone.mounts
    rig.disks["i-1"].busy.add(point)
    with pytest.raises(EnvironmentFault) as found:
        rig.process().mount(rig.bundle_id)
    assert reason_of(found.value) == "busy"
    assert rig.zone.mounts == {point: lost}
    rig.disks["i-1"].busy.clear()
    rig.process().mount(rig.bundle_id)
    assert list(rig.zone.mounts) == [point]
    assert rig.zone.mounts[point] != lost


def test_a_host_that_is_terminated_takes_its_volumes_along(rig: Rig) -> None:
    rig.stored()
    rig.process("i-2").mount(rig.bundle_id)
    rig.cloud.terminate("i-2")
    rig.settle()
    (left,) = rig.cloud.volumes()
    assert left.attachment is not None
    assert left.attachment.instance_id == "i-1"


# Two at once


def test_two_processes_of_a_host_mount_one_volume(rig: Rig) -> None:
    rig.stored()
    with ThreadPoolExecutor(4) as threads:
        mounts = [threads.submit(rig.process("i-2").mount, rig.bundle_id) for _ in range(4)]
    assert [mount.result() for mount in mounts] == [None] * 4
    rig.check_warm("i-1", "i-2")


def test_what_another_process_works_on_is_left_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.stored()
    other = rig.process("i-2")
    find = rig.disks["i-2"].find
    seen: list[object] = []

    def meanwhile(volume_id: str) -> object:
        if not seen:
            seen.append(other.evict(rig.bundle_id))
            other.tidy()
            other.release()
        return find(volume_id)

    monkeypatch.setattr(rig.disks["i-2"], "find", meanwhile)
    rig.process("i-2").mount(rig.bundle_id)
    assert seen == [False]
    rig.check_warm("i-1", "i-2")
