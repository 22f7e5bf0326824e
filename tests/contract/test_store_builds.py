"""Builds and the snapshots that they end in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from app.domain.account import Receipt
from app.domain.fork import EndReason
from app.domain.snapshot import Build, BuildError, BuildState, Origin
from app.errors import Conflict, NotFound
from infra.store.builds import MAX_LINE_BYTES, MAX_LINES
from tests import builders as a
from tests.contract.rows import Rows

ERROR = BuildError("snapshot_refused", "the test did not pass", "test", "output", "by hand")


def test_a_build_is_read_as_it_was_started(rows: Rows) -> None:
    build = _start(rows)
    assert rows.store.builds.get(a.PROJECT, build.build_id) == build
    assert rows.store.builds.find(build.build_id) == build
    assert rows.store.builds.of_run(build.run_id) == build
    assert rows.store.builds.of_run("run_none") is None
    assert rows.store.builds.find("build_none") is None


def test_what_a_build_makes_anew_is_kept_with_it(rows: Rows) -> None:
    """In full: the version may be deleted before the build has ended."""
    origin = Origin("task-suite@3", str(a.KEY), {"image": "1" * 64, "kernel": "2" * 64})
    build, run, template = a.build()
    rows.store.builds.start(replace(build, origin=origin), run, template, None)
    found = rows.store.builds.find(build.build_id)
    assert found is not None
    assert found.origin == origin
    candidate = a.candidate(made_of={"image": "3" * 64})
    rows.store.builds.advance(build.build_id, BuildState.BUILDING)
    rows.store.builds.frozen(build.build_id, candidate)
    found = rows.store.builds.find(build.build_id)
    assert found is not None
    assert found.candidate == candidate


def test_a_build_is_started_once_for_a_key(rows: Rows) -> None:
    receipt = Receipt("key", "sha", {"build_id": "1"})
    rows.store.builds.start(*a.build(), receipt)
    with pytest.raises(Conflict) as caught:
        rows.store.builds.start(*a.build(), receipt)
    assert caught.value.code == "idempotency_race"


def test_its_log_keeps_the_last_lines(rows: Rows) -> None:
    build = _start(rows)
    rows.store.builds.say(build.build_id, "setup", "one")
    rows.store.builds.say(build.build_id, "warm", "two")
    read = rows.store.builds.get(a.PROJECT, build.build_id)
    assert read.step == "warm"
    assert [(line.n, line.step, line.text) for line in read.log] == [
        (1, "setup", "one"),
        (2, "warm", "two"),
    ]


def test_a_log_has_a_bound(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.store.builds.MAX_LINES", 3)
    assert MAX_LINES == 2000
    build = _start(rows)
    for number in range(5):
        rows.store.builds.say(build.build_id, "setup", f"{number} " + "é" * MAX_LINE_BYTES)
    log = rows.store.builds.get(a.PROJECT, build.build_id).log
    assert [line.n for line in log] == [3, 4, 5]
    assert all(len(line.text.encode()) <= MAX_LINE_BYTES for line in log)


def test_a_line_may_hold_what_no_text_column_does(rows: Rows) -> None:
    build = _start(rows)
    rows.store.builds.say(build.build_id, "setup", "a\0b\ud800c")
    (line,) = rows.store.builds.get(a.PROJECT, build.build_id).log
    assert line.text == "a\ufffdb?c"


def test_a_build_goes_forward_only(rows: Rows) -> None:
    build_id = _start(rows).build_id
    for asked, then in (
        (BuildState.BUILDING, BuildState.BUILDING),
        (BuildState.VERIFYING, BuildState.VERIFYING),
        (BuildState.BUILDING, BuildState.VERIFYING),
    ):
        rows.store.builds.advance(build_id, asked)
        assert _state(rows, build_id) is then
    assert rows.store.builds.refuse(build_id, BuildState.REFUSED, ERROR)
    rows.store.builds.advance(build_id, BuildState.VERIFYING)
    rows.store.builds.frozen(build_id, a.candidate())
    ended = rows.store.builds.find(build_id)
    assert ended is not None
    assert (ended.state, ended.error, ended.candidate) == (BuildState.REFUSED, ERROR, None)


def test_a_build_ends_once(rows: Rows) -> None:
    build_id = _start(rows).build_id
    assert rows.store.builds.refuse(build_id, BuildState.FAILED, ERROR)
    assert not rows.store.builds.refuse(build_id, BuildState.CANCELLED, ERROR)
    with pytest.raises(Conflict) as caught:
        rows.store.builds.accept(build_id, a.snapshot())
    assert caught.value.code == "build_ended"
    assert rows.store.snapshots.list(a.PROJECT) == ()


def test_accepting_gives_the_next_version_and_ends_the_build(rows: Rows) -> None:
    build_id = _start(rows).build_id
    candidate = a.candidate(build_id)
    rows.store.builds.frozen(build_id, candidate)
    stored = rows.store.builds.accept(build_id, a.snapshot())
    assert (stored.ref, stored.created_ns) == ("task-suite@1", rows.clock.wall_ns())
    assert rows.store.builds.accept(build_id, a.snapshot()) == stored
    assert rows.store.snapshots.get(a.PROJECT, "task-suite") == stored
    ended = rows.store.builds.find(build_id)
    assert ended is not None
    assert (ended.state, ended.snapshot_ref) == (BuildState.VERIFIED, "task-suite@1")
    assert ended.candidate == candidate
    assert not rows.store.builds.refuse(build_id, BuildState.REFUSED, ERROR)


def test_versions_of_a_name_count_up_under_concurrency(rows: Rows) -> None:
    build_ids = [_start(rows).build_id for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        stored = list(
            pool.map(lambda each: rows.store.builds.accept(each, a.snapshot()), build_ids)
        )
    assert sorted(snapshot.version for snapshot in stored) == [1, 2, 3, 4, 5, 6]
    assert rows.store.snapshots.get(a.PROJECT, "task-suite").version == 6


def test_a_deleted_number_is_never_given_again(rows: Rows) -> None:
    for _ in range(2):
        _store(rows)
    assert [each.version for each in rows.store.snapshots.delete(a.PROJECT, "task-suite@2")] == [2]
    assert rows.store.snapshots.get(a.PROJECT, "task-suite").version == 1
    assert _store(rows) == "task-suite@3"
    gone = rows.store.snapshots.delete(a.PROJECT, "task-suite")
    assert [each.ref for each in gone] == ["task-suite@1", "task-suite@3"]
    assert rows.store.snapshots.list(a.PROJECT) == ()


@pytest.mark.parametrize(
    ("ref", "says"),
    [
        ("task-siute", "near it: task-suite"),
        ("task-suite@9", "versions of task-suite: 1"),
        ("task-suite@99999999999999999999", "versions of task-suite: 1"),
        ("task-suite@x", "a version is a whole number"),
        ("else", "there is no snapshot else"),
    ],
)
def test_an_unknown_snapshot_is_told_with_what_is_near(rows: Rows, ref: str, says: str) -> None:
    _store(rows)
    with pytest.raises(NotFound, match=says) as caught:
        rows.store.snapshots.get(a.PROJECT, ref)
    assert caught.value.code == "unknown_snapshot"


def test_bundles_are_owned_by_snapshots_and_unfinished_builds(rows: Rows) -> None:
    waiting, refused = _start(rows), _start(rows)
    rows.store.builds.refuse(refused.build_id, BuildState.REFUSED, ERROR)
    _store(rows)
    stored = rows.store.snapshots.get(a.PROJECT, "task-suite").bundle_id
    assert rows.store.snapshots.bundle_ids() == {waiting.build_id, stored}
    rows.store.snapshots.delete(a.PROJECT, "task-suite")
    assert rows.store.snapshots.bundle_ids() == {waiting.build_id}


def test_a_build_whose_forks_have_ended_is_unsettled_until_it_ends(rows: Rows) -> None:
    rows.host()
    build = _start(rows)
    assert rows.store.builds.unsettled() == ()
    rows.place()
    template = rows.store.attempts.open(a.HOST, "w", "b", 0, build.template_fork_id)
    assert template is not None
    closed = rows.close(template, 5, EndReason.COMMAND_PASSED)
    sequel = closed.sequel
    assert (sequel.run_ended, sequel.build_id, sequel.host_id) == (True, build.build_id, a.HOST)
    assert rows.store.builds.unsettled() == ((rows.store.builds.find(build.build_id), a.HOST),)
    rows.store.builds.refuse(build.build_id, BuildState.FAILED, ERROR)
    assert rows.store.builds.unsettled() == ()


def _start(rows: Rows) -> Build:
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    return replace(build, created_ns=rows.clock.wall_ns())


def _store(rows: Rows) -> str:
    return rows.store.builds.accept(_start(rows).build_id, a.snapshot()).ref


def _state(rows: Rows, build_id: str) -> BuildState:
    build = rows.store.builds.find(build_id)
    assert build is not None
    return build.state
