"""Rows that nobody works on, planted past the code, are found and mended; sound ones never are."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, update

from app.domain.fork import EndReason
from app.domain.leak import GRACE_NS, Leak, LeakKind
from app.domain.ledger import CLOSE_MARGIN_NS, START_WINDOW_NS
from app.domain.run import Exec, ExecPurpose, ExecState, FileMove, RunState
from app.domain.snapshot import Build, BuildError, BuildState, Upload
from infra.store.tables import attempts, execs, forks, hosts, projects
from tests import builders as a
from tests.contract.rows import Rows


def plant(rows: Rows, *statements: Any) -> None:
    """Write past the code."""
    with rows.store.database.write() as at:
        for statement in statements:
            at.execute(statement)


def only(rows: Rows, kind: LeakKind) -> Leak:
    """The one leak that there is."""
    (found,) = rows.store.leaks.found()
    assert found.kind is kind
    return found


def mend(rows: Rows, leak: Leak) -> None:
    """Mended once, and well afterwards."""
    assert rows.store.leaks.mend(leak)
    assert rows.store.leaks.found() == ()
    assert not rows.store.leaks.mend(leak)
    rows.check_laws()


def test_rows_in_the_middle_of_everything_are_sound(rows: Rows) -> None:
    leaks = rows.store.leaks
    rows.started(4)
    assert leaks.found() == ()
    ready = rows.ready(rows.open())
    checking = rows.store.attempts.checking(rows.open(), (), "a" * 32)
    assert leaks.found() == ()
    rows.close(ready, 5)
    rows.close(checking, 6, then=None, failure=a.failed())
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    rows.place()
    assert leaks.found() == ()
    rows.store.runs.ask_stop(run.run_id, EndReason.CANCELLED)
    assert leaks.found() == ()  # its build is unsettled, and young


def test_an_open_attempt_past_law_8_is_told(rows: Rows) -> None:
    claimed = rows.started()
    grace_ns = GRACE_NS[LeakKind.OVERDUE_ATTEMPT]
    over_ns = START_WINDOW_NS + claimed.attempt.lease_ns + CLOSE_MARGIN_NS
    rows.clock.advance((over_ns + grace_ns) / 1e9)
    assert rows.store.leaks.found() == ()
    rows.clock.advance(1)
    leak = only(rows, LeakKind.OVERDUE_ATTEMPT)
    assert leak.name == claimed.attempt.attempt_id
    assert not rows.store.leaks.mend(leak)  # with its bells, by the verb that has them


def test_a_run_whose_forks_have_all_ended_ends(rows: Rows) -> None:
    run = rows.start(1, budget_micros=0)
    plant(rows, delete(forks))
    leak = only(rows, LeakKind.RUN_WITHOUT_FORKS)
    assert leak.name == run.run_id
    mend(rows, leak)
    assert rows.run(run.run_id).state is RunState.ENDED


def test_a_fork_that_has_no_machine_where_it_needs_one_is_told(rows: Rows) -> None:
    claimed = rows.started()
    closed = {"closed_boot_ns": 1, "closed_ns": 1}
    plant(rows, update(attempts).values(closed))
    leak = only(rows, LeakKind.FORK_WITHOUT_MACHINE)
    assert leak.name == claimed.fork.fork_id
    assert not rows.store.leaks.mend(leak)
    plant(rows, update(attempts).values(closed_boot_ns=None, closed_ns=None))


def test_a_command_of_a_closed_attempt_is_lost(rows: Rows) -> None:
    claimed = rows.started()
    asked = Exec(
        "exec_1",
        claimed.fork.fork_id,
        claimed.attempt.attempt_id,
        a.PROJECT,
        ExecPurpose.TASK,
        a.COMMAND,
    )
    rows.store.execs.intend(rows.ready(claimed), asked)
    assert rows.store.leaks.found() == ()
    rows.close(claimed, 5)
    plant(rows, update(execs).values(state="running"))
    mend(rows, only(rows, LeakKind.EXEC_OF_CLOSED_ATTEMPT))
    found = rows.store.execs.find("exec_1")
    assert found is not None
    assert found.state is ExecState.LOST


def test_a_build_that_no_host_settles_for_hours_is_refused(rows: Rows) -> None:
    build, run, template = a.build()
    rows.store.builds.start(build, run, template, None)
    rows.store.runs.ask_stop(run.run_id, EndReason.CANCELLED)
    rows.clock.advance(GRACE_NS[LeakKind.UNSETTLED_BUILD] / 1e9 - 1)
    assert rows.store.leaks.found() == ()
    rows.clock.advance(1)
    mend(rows, only(rows, LeakKind.UNSETTLED_BUILD))
    found = rows.store.builds.find(build.build_id)
    assert found is not None
    assert found.state is BuildState.FAILED


@pytest.mark.parametrize("column", ["free_slots", "free_memory_mib", "free_disk_gib"])
def test_a_hosts_room_is_counted_again(rows: Rows, column: str) -> None:
    rows.started(3)
    before = rows.store.hosts.list()
    plant(rows, update(hosts).values({column: hosts.c[column] - 2}))
    leak = only(rows, LeakKind.HOST_ROOM)
    assert leak.name == a.HOST
    mend(rows, leak)
    assert rows.store.hosts.list() == before


def test_a_host_that_came_back_smaller_has_no_room_and_no_leak(rows: Rows) -> None:
    claimed = rows.started(3)
    rows.host(slots=2, memory_mib=2 * 512, disk_gib=2 * 4)
    assert rows.store.leaks.found() == ()
    # As forks end it shows room too early, and never more than it has: that is counted again.
    rows.store.runs.ask_stop(claimed.run.run_id, EndReason.CANCELLED)
    mend(rows, only(rows, LeakKind.HOST_ROOM))
    rows.close(claimed, 5, EndReason.CANCELLED)
    assert rows.store.leaks.found() == ()


def test_placed_forks_of_a_project_are_counted_again(rows: Rows) -> None:
    rows.started(3)
    plant(rows, update(projects).values(live_forks=7))
    leak = only(rows, LeakKind.PROJECT_FORKS)
    assert leak.detail == "7 counted, 3 placed"
    mend(rows, leak)


def test_all_bytes_that_rows_name_are_named_and_what_a_guest_printed_is_not(rows: Rows) -> None:
    claimed = rows.ready(rows.started(hold_ns=10**12))
    sent, lie = (hashlib.sha256(text).hexdigest() for text in (b"sent", b"lie"))
    asked = Exec(
        "exec_1",
        claimed.fork.fork_id,
        "",
        a.PROJECT,
        ExecPurpose.UPLOAD,
        None,
        file=FileMove("/tmp/x", sha256=sent),
    )
    rows.store.execs.request(asked)
    rows.store.execs.request(
        Exec(
            "exec_2",
            claimed.fork.fork_id,
            "",
            a.PROJECT,
            ExecPurpose.UPLOAD,
            None,
            file=FileMove(f'/tmp/"sha256":"{lie}"', sha256=sent),
        )
    )
    assert rows.store.leaks.blobs_named() == {sent}


def test_files_are_named_as_long_as_a_version_can_be_made_anew_of_them(rows: Rows) -> None:
    def begun(content: bytes) -> tuple[Build, str]:
        sha256 = hashlib.sha256(content).hexdigest()
        given = a.definition(files=(Upload("/workspace", sha256),))
        build, run, template = a.build()
        build = replace(build, definition=given)
        rows.store.builds.start(build, run, template, None)
        return build, sha256

    (_, of_waiting), (refused, _), (verified, of_verified) = map(
        begun, (b"waiting", b"refused", b"verified")
    )
    error = BuildError("snapshot_refused", "the test did not pass", "test")
    rows.store.builds.refuse(refused.build_id, BuildState.REFUSED, error)
    made = a.snapshot(definition=verified.definition, bundle_id=verified.build_id)
    rows.store.builds.accept(verified.build_id, made)
    assert rows.store.leaks.blobs_named() == {of_waiting, of_verified}
    rows.store.snapshots.delete(a.PROJECT, "task-suite")
    assert rows.store.leaks.blobs_named() == {of_waiting}
