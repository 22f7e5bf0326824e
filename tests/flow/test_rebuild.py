"""A stored version is made anew from what its row kept: the name moves when that has verified, and not before."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.domain.snapshot import Snapshot, Upload
from app.errors import BadRequest, Conflict, NotFound
from app.flow import build, leaks
from app.flow._once import Token
from infra.fakes.machines import FakeImages
from tests.flow.stage import PROJECT, Stage, definition, sim


def stored(stage: Stage, ref: str = "task-suite") -> Snapshot:
    return stage.ports.snapshots.get(PROJECT, ref)


def refused(stage: Stage, ref: str, **more: Any) -> Conflict:
    with pytest.raises(Conflict) as caught:
        build.rebuild(stage.ports, PROJECT, ref, more.get("cap_micros"), None)
    assert stage.ring() == 0
    return caught.value


def test_a_rebuild_is_a_new_version_of_the_same_definition(stage: Stage) -> None:
    files = (Upload("/workspace", stage.put(b"a tar")),)
    stage.build(definition(files=files, setup=(sim("1s"),)))
    page = stage.rebuild("task-suite")
    assert (page["state"], page["snapshot"], page["rebuilds"]) == (
        "verified",
        "task-suite@2",
        "task-suite@1",
    )
    first, second = stored(stage, "task-suite@1"), stored(stage)
    assert second.ref == "task-suite@2"
    assert second.definition == first.definition
    assert second.bundle_id != first.bundle_id
    assert second.provenance["rebuilt_from"] == {"snapshot": "task-suite@1", "differs": {}}
    assert first.provenance["rebuilt_from"] is None


def test_the_provenance_says_what_differs_from_the_older_version(suite: Stage) -> None:
    images = suite.ports.images
    assert isinstance(images, FakeImages)
    images.release = "2"
    suite.rebuild("task-suite")
    assert stored(suite).provenance["made_of"] == {
        "image": "debian-12",
        "kernel": "2",
        "tools": "2",
    }
    assert stored(suite).provenance["rebuilt_from"] == {
        "snapshot": "task-suite@1",
        "differs": {"kernel": {"was": "1", "is": "2"}, "tools": {"was": "1", "is": "2"}},
    }


def test_a_rebuild_that_is_refused_leaves_the_name_where_it_was(stage: Stage) -> None:
    stage.build(definition())
    stage.world.spoil("task", "1s print broken exit 1")
    page = stage.rebuild("task-suite")
    assert (page["state"], page["snapshot"]) == ("refused", None)
    assert stored(stage).ref == "task-suite@1"


def test_an_older_versions_rebuild_brings_its_definition_back(stage: Stage) -> None:
    stage.build(definition())
    stage.build(definition(test=sim("2s exit 0")))
    page = stage.rebuild("task-suite@1")
    assert page["snapshot"] == "task-suite@3"
    assert stored(stage).definition == stored(stage, "task-suite@1").definition
    assert stored(stage).provenance["rebuilt_from"] == {"snapshot": "task-suite@1", "differs": {}}


def test_a_version_that_is_deleted_meanwhile_is_still_what_it_was_rebuilt_from(
    suite: Stage,
) -> None:
    answer = build.rebuild(suite.ports, PROJECT, "task-suite", None, None)
    suite.ports.snapshots.delete(PROJECT, "task-suite")
    page = suite.followed(answer)
    assert (page["snapshot"], page["rebuilds"]) == ("task-suite@2", "task-suite@1")
    assert stored(suite).provenance["rebuilt_from"] == {"snapshot": "task-suite@1", "differs": {}}


def test_the_reaper_keeps_what_a_rebuild_needs(stage: Stage, tmp_path: Path) -> None:
    needed, lone = stage.put(b"a tar"), stage.put(b"nobody's")
    stage.build(definition(files=(Upload("/workspace", needed),)))
    for sha256 in (needed, lone):
        os.utime(tmp_path / "blobs" / sha256[:2] / sha256, (1, 1))
    for leak in leaks.of_blobs(stage.ports, stage.stores.leaks):
        stage.ports.blobs.delete((leak.name,))
    assert not stage.ports.blobs.has(lone)
    assert stage.rebuild("task-suite")["snapshot"] == "task-suite@2"


def test_files_that_are_gone_are_named_with_what_to_do(stage: Stage) -> None:
    kept, gone = stage.put(b"a tar"), stage.put(b"another")
    stage.build(definition(files=(Upload("/workspace", kept), Upload("/data", gone))))
    stage.ports.blobs.delete((gone,))
    told = refused(stage, "task-suite@1")
    assert told.code == "files_gone"
    assert told.details == {"files": [{"guest_path": "/data", "sha256": gone}]}
    assert "build task-suite from its definition" in told.message


def test_an_image_that_is_gone_is_named_with_those_that_are_there(suite: Stage) -> None:
    suite.ports = replace(suite.ports, images=FakeImages("debian-13", "busybox"))
    told = refused(suite, "task-suite")
    assert (told.code, told.details) == ("image_gone", {"image": "debian-12"})
    assert "debian-13, busybox" in told.message


def test_an_unknown_snapshot_is_not_rebuilt(suite: Stage) -> None:
    for ref in ("task-suit", "task-suite@7"):
        with pytest.raises(NotFound):
            build.rebuild(suite.ports, PROJECT, ref, None, None)
    with pytest.raises(NotFound):
        build.rebuild(suite.ports, "another project", "task-suite", None, None)


def test_a_cap_that_has_become_too_small_can_be_said_anew(suite: Stage) -> None:
    with pytest.raises(BadRequest) as small:
        build.rebuild(suite.ports, PROJECT, "task-suite", 1, None)
    assert small.value.code == "cap_too_small"
    suite.followed(build.rebuild(suite.ports, PROJECT, "task-suite", 400_000, None))
    assert stored(suite).definition == replace(
        stored(suite, "task-suite@1").definition, cap_micros=400_000
    )


def test_one_key_is_one_rebuild(suite: Stage) -> None:
    token = Token("once", "0" * 64)
    first = build.rebuild(suite.ports, PROJECT, "task-suite", None, token)
    assert build.rebuild(suite.ports, PROJECT, "task-suite", None, token) == first
    suite.followed(first)
    assert build.rebuild(suite.ports, PROJECT, "task-suite", None, token) == first
    assert [row.ref for row in suite.ports.snapshots.list(PROJECT)] == [
        "task-suite@1",
        "task-suite@2",
    ]
