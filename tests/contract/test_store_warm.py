"""Warm targets: set, followed, ended with their snapshot; and what a host says of its disk and its mounts."""

from __future__ import annotations

import pytest

from app.domain.disk import DiskRoom
from app.domain.placement import Host
from app.domain.snapshot import Snapshot
from app.errors import NotFound
from tests import builders as a
from tests.contract.rows import Rows

GIB = 1 << 30


def stored(rows: Rows, name: str = "task-suite", project_id: str = a.PROJECT) -> Snapshot:
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    return rows.store.builds.accept(
        build.build_id, a.snapshot(name, project_id=project_id, bundle_id=build.build_id)
    )


def the_host(rows: Rows) -> Host:
    (host,) = rows.store.hosts.list()
    return host


def test_a_target_of_a_bare_name_follows_its_newest_version(rows: Rows) -> None:
    first = stored(rows)
    made = rows.store.warm.set(a.PROJECT, "task-suite", 2)
    assert made is not None
    assert (made.ref, made.version, made.bundle_id) == (first.ref, None, first.bundle_id)
    assert rows.store.warm.list() == (made,)
    second = stored(rows)
    (now,) = rows.store.warm.list(a.PROJECT)
    assert (now.ref, now.bundle_id, now.hosts) == ("task-suite@2", second.bundle_id, 2)


def test_a_target_of_a_version_stays_with_it(rows: Rows) -> None:
    first = stored(rows)
    stored(rows)
    rows.store.warm.set(a.PROJECT, "task-suite", 1)
    rows.store.warm.set(a.PROJECT, "task-suite@1", 3)
    told = [(each.version, each.ref, each.hosts) for each in rows.store.warm.list()]
    assert told == [(None, "task-suite@2", 1), (1, "task-suite@1", 3)]
    assert rows.store.warm.list()[1].bundle_id == first.bundle_id


def test_the_last_word_holds_and_none_ends_it(rows: Rows) -> None:
    stored(rows)
    for hosts in (1, 4):
        rows.store.warm.set(a.PROJECT, "task-suite", hosts)
    assert [each.hosts for each in rows.store.warm.list()] == [4]
    for _ in range(2):
        assert rows.store.warm.set(a.PROJECT, "task-suite", 0) is None
        assert rows.store.warm.list() == ()


def test_nobody_keeps_what_is_not_there_or_anothers(rows: Rows) -> None:
    stored(rows)
    for project_id, ref in ((a.PROJECT, "task-suit"), (a.PROJECT, "task-suite@2"), ("other", "x")):
        with pytest.raises(NotFound, match="there is no snapshot"):
            rows.store.warm.set(project_id, ref, 1)
    rows.store.warm.set(a.PROJECT, "task-suite", 1)
    assert rows.store.warm.list("other") == ()


def test_targets_go_with_their_snapshot(rows: Rows) -> None:
    stored(rows)
    stored(rows)
    stored(rows, "another")
    for ref in ("task-suite", "task-suite@1", "another"):
        rows.store.warm.set(a.PROJECT, ref, 1)
    rows.store.snapshots.delete(a.PROJECT, "task-suite@1")
    assert [each.ref for each in rows.store.warm.list()] == ["another@1", "task-suite@2"]
    rows.store.snapshots.delete(a.PROJECT, "task-suite")
    assert [each.ref for each in rows.store.warm.list()] == ["another@1"]


def test_a_version_that_comes_after_all_were_deleted_has_no_target(rows: Rows) -> None:
    stored(rows)
    rows.store.warm.set(a.PROJECT, "task-suite", 1)
    rows.store.snapshots.delete(a.PROJECT, "task-suite")
    stored(rows)
    assert rows.store.warm.list() == ()


def test_a_disk_is_nearly_full_below_its_reserve_and_comes_back_well_above_it(rows: Rows) -> None:
    rows.host()
    assert the_host(rows).disk_free_bytes is None
    seen = []
    for free_gib in (10, 9, 3.9, 4.5, 5, 4.5):
        room = DiskRoom(int(free_gib * GIB), 4 * GIB)
        rows.store.hosts.heartbeat(a.HOST, (), disk=room)
        seen.append(the_host(rows).disk_nearly_full)
        assert the_host(rows).disk_free_bytes == room.free_bytes
    assert seen == [False, False, True, True, False, False]


def test_a_host_whose_disk_is_nearly_full_gets_no_fork_and_gives_back_what_waits(
    rows: Rows,
) -> None:
    rows.host()
    rows.start(2)
    seen = rows.store.hosts.list()
    assert rows.place() == 2
    rows.store.hosts.heartbeat(a.HOST, (), disk=DiskRoom(1 * GIB, 4 * GIB))
    assert "1.0 GiB left" in str(the_host(rows).unready)
    assert rows.try_open() is None
    assert rows.store.hosts.unassign_dead() == 2
    assert rows.place() == 0
    assert rows.place_on(seen) == 0
    rows.store.hosts.heartbeat(a.HOST, (), disk=DiskRoom(9 * GIB, 4 * GIB))
    assert rows.place() == 2


def test_what_a_host_could_not_mount_stands_until_its_next_heartbeat(rows: Rows) -> None:
    rows.host()
    rows.store.hosts.heartbeat(a.HOST, (), unmountable=(("build_1", "throttled"),))
    assert the_host(rows).unmountable == (("build_1", "throttled"),)
    rows.store.hosts.heartbeat(a.HOST, ("build_1",))
    assert the_host(rows).unmountable == ()
