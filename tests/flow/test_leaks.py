"""What nobody owns is found and made away with; what is in use, young or another's is not."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.leak import GRACE_NS, REMEDIES, Leak, LeakKind, Trace
from app.domain.run import ExecState
from app.domain.trial import TRIAL_NS, trial_name
from app.errors import Unavailable
from app.flow import hold, leaks
from infra.fakes.traces import FakeTraces
from tests.flow.stage import Stage, spec
from workers.reaping import Reaper, host_reaper

GONE = "att_0000000000000000000000000000000000"
OF_A_MACHINE = [
    LeakKind.MOUNT,
    LeakKind.LOOP_DEVICE,
    LeakKind.PROCESS,
]


@pytest.fixture
def floor() -> FakeTraces:
    return FakeTraces()


def turns(suite: Stage, floor: FakeTraces, count: int = 2) -> list[LeakKind]:
    """What a reaper counts that comes by so often."""
    counted: list[LeakKind] = []
    reaper = host_reaper(suite.ports, suite.host, floor, counted.append)
    for _ in range(count):
        reaper.turn()
    return counted


def lay(floor: FakeTraces, kind: LeakKind, owner: str | None, age_ns: int | None = None) -> Leak:
    leak = Leak(kind, f"{owner}'s {kind.value}", age_ns=age_ns)
    floor.lying.append(Trace(leak, owner))
    return leak


def running(suite: Stage) -> str:
    """The machine of a fork that goes on for long."""
    run_id = suite.start(spec("500s", count=1))
    suite.run_for(3)
    (fork,) = suite.ports.runs.forks(run_id)
    assert fork.attempt_id is not None
    return fork.attempt_id


def ended(suite: Stage) -> str:
    """A machine whose attempt is closed."""
    run_id = suite.start(spec("1s", count=1))
    suite.run_until_final(run_id)
    (line,) = suite.ports.runs.attempts(run_id)
    return line.attempt.attempt_id


def test_every_kind_has_its_remedy() -> None:
    assert set(REMEDIES) == set(LeakKind)


def test_a_machine_and_a_bundle_that_no_row_owns_go_at_once(
    suite: Stage, floor: FakeTraces
) -> None:
    mine = running(suite)
    bundle = suite.host.bundles.open(suite.host.bundles.known()[0])
    box = suite.world.boxes[mine]
    suite.world.boxes["att_planted"] = box  # as if its row had gone
    suite.host.bundles.staging("build_unowned").mkdir(parents=True)
    assert sorted(turns(suite, floor, 1)) == [LeakKind.BUNDLE, LeakKind.MACHINE]
    assert suite.host.bundles.known() == (bundle.bundle_id,)
    assert "att_planted" not in suite.host.machines.known()


def test_what_is_in_use_stays(suite: Stage, floor: FakeTraces) -> None:
    mine = running(suite)
    for kind in OF_A_MACHINE:
        lay(floor, kind, mine)
    lay(floor, LeakKind.MOUNT, suite.host.bundles.known()[0])
    lay(floor, LeakKind.CONTROL_GROUP, mine)
    assert turns(suite, floor, 3) == []
    assert mine in suite.host.machines.known()
    assert len(floor.lying) == len(OF_A_MACHINE) + 2


def test_a_host_that_is_called_by_another_name_loses_nothing(
    suite: Stage, floor: FakeTraces
) -> None:
    mine = running(suite)
    lay(floor, LeakKind.PROCESS, mine)
    suite.hosts["host0"] = replace(suite.host, host_id="as another shell calls it")
    assert turns(suite, floor, 3) == []
    assert mine in suite.host.machines.known()


@pytest.mark.parametrize("kind", OF_A_MACHINE)
def test_a_trace_without_its_owner_goes_when_two_looks_saw_it(
    suite: Stage, floor: FakeTraces, kind: LeakKind
) -> None:
    lay(floor, kind, GONE)
    assert turns(suite, floor, 1) == []
    assert floor.lying != []
    assert turns(suite, floor, 2) == [kind]
    assert floor.lying == []


def test_what_was_there_for_one_look_only_is_no_leak(suite: Stage, floor: FakeTraces) -> None:
    reaper = host_reaper(suite.ports, suite.host, floor, lambda kind: pytest.fail(kind))
    for _ in range(3):
        lay(floor, LeakKind.PROCESS, GONE)
        reaper.turn()
        floor.lying.clear()
        reaper.turn()


def test_a_group_goes_if_it_was_of_an_attempt_of_ours(suite: Stage, floor: FakeTraces) -> None:
    another_stacks = lay(floor, LeakKind.CONTROL_GROUP, GONE)
    lay(floor, LeakKind.CONTROL_GROUP, ended(suite))
    assert turns(suite, floor) == [LeakKind.CONTROL_GROUP]
    assert [trace.leak for trace in floor.lying] == [another_stacks]


def test_what_is_young_stays(suite: Stage, floor: FakeTraces) -> None:
    grace_ns = GRACE_NS[LeakKind.BUNDLE_REMAINS]
    young = lay(floor, LeakKind.BUNDLE_REMAINS, None, grace_ns - 1)
    floor.lying.append(Trace(Leak(LeakKind.BUNDLE_REMAINS, "old", age_ns=grace_ns), None))
    assert turns(suite, floor) == [LeakKind.BUNDLE_REMAINS]
    assert [trace.leak for trace in floor.lying] == [young]


def test_a_self_test_is_in_use_until_its_time_is_over(suite: Stage, floor: FakeTraces) -> None:
    name = trial_name(suite.clock.boot_ns(), suite.clock.boot_ns() + TRIAL_NS, "ab12")
    lay(floor, LeakKind.PROCESS, name)
    assert turns(suite, floor) == []
    suite.clock.advance(TRIAL_NS / 1e9 + 1)
    assert turns(suite, floor) == [LeakKind.PROCESS]


def test_a_mount_goes_before_the_directory_that_it_is_in(suite: Stage, floor: FakeTraces) -> None:
    suite.world.boxes["att_planted"] = suite.world.boxes[running(suite)]
    lay(floor, LeakKind.MOUNT, "att_planted")
    assert turns(suite, floor, 1) == []
    assert "att_planted" in suite.host.machines.known()
    assert turns(suite, floor, 3) == [LeakKind.MOUNT, LeakKind.MACHINE]


def test_a_stored_bundle_goes_with_its_own_mount(tmp_path: Path, floor: FakeTraces) -> None:
    stage = Stage(tmp_path, elsewhere=True)
    stage.host.bundles.staging("build_unowned").mkdir(parents=True)
    lay(floor, LeakKind.MOUNT, "build_unowned")
    # To unmount it alone would leave the volume, which nobody would then look for.
    assert turns(stage, floor, 1) == [LeakKind.BUNDLE]
    assert stage.host.bundles.known() == ()


def test_what_cannot_be_mended_is_told_once_and_holds_up_nothing(
    suite: Stage, floor: FakeTraces
) -> None:
    floor.stuck.add(lay(floor, LeakKind.MOUNT, GONE))
    lay(floor, LeakKind.PROCESS, GONE)
    assert turns(suite, floor, 5) == [LeakKind.MOUNT, LeakKind.PROCESS]
    assert len(floor.lying) == 1


def test_one_mending_that_fails_holds_up_no_other() -> None:
    done = []

    def mend(leak: Leak) -> bool:
        if leak.name == "a":
            raise Unavailable("machine_will_not_die", "")
        done.append(leak.name)
        return True

    seen = frozenset({Leak(LeakKind.MACHINE, "a"), Leak(LeakKind.MACHINE, "b")})
    Reaper(lambda: seen, mend, lambda _: None).turn()
    assert done == ["b"]


def test_without_rows_nothing_is_called_a_leak(
    suite: Stage, floor: FakeTraces, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.world.boxes["att_planted"] = suite.world.boxes[running(suite)]

    def away(_: str) -> tuple[object, ...]:
        raise Unavailable("database_away", "")

    monkeypatch.setattr(type(suite.ports.attempts), "held_by", lambda _, host_id: away(host_id))
    with pytest.raises(Unavailable):
        turns(suite, floor)
    assert "att_planted" in suite.host.machines.known()


def test_bytes_that_no_row_names_go_after_a_day_and_named_ones_never(
    suite: Stage, tmp_path: Path
) -> None:
    old = time.time() - GRACE_NS[LeakKind.BLOB] / 1e9 - 60
    named, lone, young = suite.put(b"named"), suite.put(b"lone"), suite.put(b"young")
    run_id = suite.start(spec(count=1, exec=None, hold_ns=60 * 10**9))
    suite.run_for(3)
    (fork,) = suite.ports.runs.forks(run_id)
    hold.upload(suite.ports, fork.project_id, fork.fork_id, "/tmp/x", named, 0o644)
    for sha256 in (named, lone):
        os.utime(tmp_path / "blobs" / sha256[:2] / sha256, (old, old))
    found = leaks.of_blobs(suite.ports, suite.stores.leaks)
    assert found == {Leak(LeakKind.BLOB, lone)}
    (leak,) = found
    assert leaks.mend_in_deployment(suite.ports, suite.stores.leaks, FakeTraces(), leak)
    assert suite.ports.blobs.has(named)
    assert suite.ports.blobs.has(young)
    assert not suite.ports.blobs.has(lone)


def test_bytes_that_are_asked_for_are_young_again(suite: Stage, tmp_path: Path) -> None:
    old = time.time() - GRACE_NS[LeakKind.BLOB] / 1e9 - 60
    sha256 = hashlib.sha256(b"lone").hexdigest()
    asked: tuple[Callable[[], object], ...] = (
        lambda: suite.put(b"lone"),
        lambda: suite.ports.blobs.has(sha256),
    )
    for again in asked:
        suite.put(b"lone")
        os.utime(tmp_path / "blobs" / sha256[:2] / sha256, (old, old))
        (leak,) = leaks.of_blobs(suite.ports, suite.stores.leaks)
        again()
        assert not leaks.mend_in_deployment(suite.ports, suite.stores.leaks, FakeTraces(), leak)
        assert suite.ports.blobs.has(sha256)


def test_what_is_left_of_uploads_into_a_bucket_goes_after_an_hour(suite: Stage) -> None:
    bucket, rows, queue = FakeTraces(), suite.stores.leaks, FakeTraces()
    young = lay(bucket, LeakKind.BLOB_REMAINS, None, GRACE_NS[LeakKind.BLOB_REMAINS] - 1)
    old = Leak(LeakKind.BLOB_REMAINS, "old", age_ns=GRACE_NS[LeakKind.BLOB_REMAINS])
    bucket.lying.append(Trace(old, None))
    assert leaks.of_blobs(suite.ports, rows, bucket) == {old}
    assert leaks.mend_in_deployment(suite.ports, rows, queue, old, bucket)
    assert [trace.leak for trace in bucket.lying] == [young]
    assert not leaks.mend_in_deployment(suite.ports, rows, queue, old)


def test_an_attempt_that_billing_forgot_is_closed_by_law_8(suite: Stage) -> None:
    name = running(suite)
    suite.clock.advance(4000)
    leak = Leak(LeakKind.OVERDUE_ATTEMPT, name)
    found = leaks.in_deployment(suite.stores.leaks, FakeTraces())
    assert [(each.kind, each.name) for each in found] == [(leak.kind, leak.name)]
    assert leaks.mend_in_deployment(suite.ports, suite.stores.leaks, FakeTraces(), leak)
    suite.ring()
    assert leaks.in_deployment(suite.stores.leaks, FakeTraces()) == frozenset()
    assert not leaks.mend_in_deployment(suite.ports, suite.stores.leaks, FakeTraces(), leak)


def test_after_a_step_nothing_is_left(suite: Stage, floor: FakeTraces) -> None:
    for text in ("1s exit 0", "1s exit 1", "1s crash", "1s poweroff"):
        suite.run_until_final(suite.start(spec(text, count=2)))
    assert leaks.on_host(suite.ports, suite.host, floor) == frozenset()
    assert leaks.in_deployment(suite.stores.leaks, floor) == frozenset()


def test_a_command_that_shuts_its_machine_down_has_ended_and_is_not_lost(suite: Stage) -> None:
    run_id = suite.start(spec("1s poweroff", count=1))
    page = suite.run_until_final(run_id)
    assert page["forks"][0]["reason"] == "command_shut_down"
    (line,) = suite.ports.runs.attempts(run_id)
    row = suite.ports.execs.find(f"task_{line.attempt.attempt_id}")
    assert row is not None
    assert row.state is ExecState.ENDED
    assert row.result is not None
    assert row.result.exit_code is None
    assert row.result.duration_ns > 0
    assert row.result.truncated
