"""The main job on real machines: build, refuse, run, lose, hold. The flow is driven here, without a queue."""

from __future__ import annotations

import io
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from app.domain.fork import EndReason, ForkState
from app.domain.leak import LeakKind
from app.domain.machine import BootImage, Deadline
from app.domain.quarantine import Quarantine
from app.domain.run import Exec, ExecState
from app.domain.trial import trial_name
from app.errors import FailureKind
from app.flow import debug, hold, selftest
from app.ports import Images
from infra.image.images import LocalImages
from infra.leaks.host import HostTraces
from infra.store.tables import hosts
from tests.e2e.conftest import Frozen, Host
from tests.e2e.live import Live, sh, step, suite
from tests.flow.stage import PROJECT
from workers.reaping import host_reaper

pytestmark = pytest.mark.machines
PATIENT_BARRIER_S = 0.1
CHECKS = "barrier warm entropy clock identity disk channel egress test"


@dataclass(frozen=True, slots=True)
class WithBroken:
    """The real images, and one whose root disk is all zeros."""

    images: LocalImages
    zeros: Path

    def names(self) -> tuple[str, ...]:
        return (*self.images.names(), "zeros")

    def boot_image(self, name: str) -> BootImage:
        if name != "zeros":
            return self.images.boot_image(name)
        return replace(self.images.boot_image("busybox"), root_disk=self.zeros)


@pytest.fixture(scope="module")
def live(
    host: Host, images: LocalImages, frozen: Frozen, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    """A deployment on this machine, with `suite@1` stored."""
    folder = tmp_path_factory.mktemp("live")
    zeros = folder / "zeros.img"
    with zeros.open("wb") as file:
        file.truncate(8 << 20)
    with_broken: Images = WithBroken(images, zeros)
    machines = host.machines()
    patience = max(1.0, frozen.barrier_s / PATIENT_BARRIER_S)
    made = Live(folder, host.root, machines, with_broken, patience)
    try:
        page = made.built(suite())
        assert page["snapshot"] == "suite@1", page["error"]
        yield made
    finally:
        made.close()
        machines.close()


def test_a_step_passes_and_fails_and_every_fork_is_sound_and_its_own(live: Live) -> None:
    said = 'echo "$PROMIGENCE_FORK_INDEX of $PROMIGENCE_FORK_COUNT, $PROMIGENCE_KEY"'
    script = f"{said}; exit $((PROMIGENCE_FORK_INDEX % 2))"
    page = live.ended(step(script, count=4))
    assert page["totals"] | {"passed": 2, "failed": 2} == page["totals"]
    for index, fork in enumerate(page["forks"]):
        assert fork["stdout_tail"] == f"{index} of 4, group\n"
        assert (fork["exit_code"], fork["reward"]) == (index % 2, 1.0 - index % 2)
        assert [check["name"] for check in fork["checks"]] == CHECKS.split()
        assert all(check["sound"] for check in fork["checks"])
    samples = {seen(fork, "entropy") for fork in page["forks"]}
    assert len(samples) == 4
    cost = page["cost"]
    parts = cost["tasks_usd"] + cost["environment_usd"] + cost["verification_usd"]
    assert round(parts, 6) == cost["total_usd"] > 0


def test_a_time_limit_is_the_tasks_and_its_output_is_kept(live: Live) -> None:
    given = step("")
    (fork,) = live.ended(replace(given, exec=sh("echo early; sleep 600", limit_s=1)))["forks"]
    assert (fork["outcome"], fork["reward"], fork["exit_code"]) == ("timed_out", 0.0, None)
    assert fork["stdout_tail"] == "early\n"
    assert fork["seconds"] >= 1.0


@pytest.mark.parametrize(
    ("command", "outcome", "reason", "kind"),
    [
        ("poweroff -f", "failed", "command_shut_down", None),
        ("echo c > /proc/sysrq-trigger", "env_failed", "environment_failed", "guest_panicked"),
    ],
)
def test_what_a_command_does_to_its_machine(
    live: Live, command: str, outcome: str, reason: str, kind: str | None
) -> None:
    (fork,) = live.ended(step(f"{command}; sleep 100"))["forks"]
    assert (fork["outcome"], fork["reason"]) == (outcome, reason)
    if kind is None:
        assert fork["reward"] == 0.0
        return
    assert (fork["failure"]["kind"], fork["reward"]) == (kind, None), fork["failure"]
    assert fork["failure"]["task_may_have_caused"] is True
    assert "sysrq" in fork["failure"]["evidence"]["console_tail"]


def test_a_machine_killed_in_mid_command_is_lost_and_never_run_again(live: Live) -> None:
    run_id = live.start(step("echo begun; sleep 600", count=2))
    live.until(lambda: states(live, run_id) == {ForkState.RUNNING}, 60)
    first, second = live.ports.runs.forks(run_id)
    handles = {handle.name: handle for handle in live.host.machines.live()}
    os.kill(handles[first.attempt_id or ""].pid, signal.SIGKILL)
    live.until(lambda: live.report(run_id)["totals"]["env_failed"] == 1, 30)
    assert live.ports.runs.fork(PROJECT, second.fork_id).state is ForkState.RUNNING
    for attempt in live.ports.runs.ask_stop(run_id, EndReason.CANCELLED):
        live.bells.stop(attempt.claim, attempt.attempt_id)
    live.until(lambda: live.report(run_id)["final"], 30)
    page = live.report(run_id)
    assert page["totals"] | {"env_failed": 1, "cancelled": 1} == page["totals"]
    (failed,) = page["environment_failures"]
    assert (failed["kind"], failed["phase"], failed["replaced"]) == ("guest_lost", "exec", False)
    assert failed["evidence"]["process_signal"] == signal.SIGKILL
    assert failed["cost_usd"] > 0


def test_a_held_fork_takes_commands_and_files_and_is_graded(live: Live) -> None:
    run_id = live.start(replace(step(""), exec=None, hold_ns=600 * 10**9))
    live.until(lambda: states(live, run_id) == {ForkState.READY}, 60)
    fork_id = live.ports.runs.forks(run_id)[0].fork_id
    sha256 = live.put(b"from outside")
    done(live, hold.upload(live.ports, PROJECT, fork_id, "/workspace/in", sha256, 0o644))
    said = done(
        live, hold.exec(live.ports, PROJECT, fork_id, sh("cat /workspace/in; exit 3"), None)
    )
    assert said.result is not None
    assert (said.result.exit_code, said.result.stdout) == (3, "from outside")
    file = done(live, hold.download(live.ports, PROJECT, fork_id, "/workspace/file")).file
    assert file is not None
    with live.ports.blobs.open(file.sha256 or "") as content:
        assert content.read() == b"made\n"
    refused = done(
        live,
        hold.exec(live.ports, PROJECT, fork_id, replace(sh("true"), cwd="/nowhere"), None),
    )
    assert refused.result is not None
    assert refused.result.error is not None
    hold.release(live.ports, PROJECT, fork_id, None, 0.5)
    live.until(lambda: live.report(run_id)["final"], 30)
    (entry,) = live.report(run_id)["forks"]
    assert (entry["outcome"], entry["reward"], entry["reward_valid"]) == ("released", 0.5, True)


def test_a_fork_that_failed_is_kept_run_in_and_released(live: Live) -> None:
    """What its command left running runs on; what it printed can be read while it runs and when all is over."""
    script = "seq 20000; touch /tmp/on && sleep 30000 & until test -e /tmp/go; do sleep 0.1; done; exit 7"
    run_id = live.start(replace(step(script), keep_failed=1, verify_each=False))
    live.until(lambda: states(live, run_id) == {ForkState.RUNNING}, 60)
    fork_id = live.ports.runs.forks(run_id)[0].fork_id
    task = debug.command(live.ports, PROJECT, fork_id, ())

    def so_far() -> str:
        row = done(live, debug.look_at_output(live.ports, task, "stdout", 0))
        assert row.result is not None
        return row.result.stdout

    whole = "".join(f"{number}\n" for number in range(1, 20001))
    live.until(lambda: so_far() == whole, 30)
    attempt = live.ports.attempts.held_by(live.host.host_id)[0].attempt.attempt_id
    live.guest.upload(attempt, io.BytesIO(b""), "/tmp/go")
    live.until(lambda: states(live, run_id) == {ForkState.READY}, 30)
    said = done(
        live, hold.exec(live.ports, PROJECT, fork_id, sh("ps | grep '[s]leep 30000'"), None)
    )
    assert said.result is not None
    assert said.result.exit_code == 0
    console = done(live, debug.look_at_console(live.ports, PROJECT, fork_id))
    assert console.result is not None
    hold.release(live.ports, PROJECT, fork_id, None, None)
    live.until(lambda: live.report(run_id)["final"], 30)
    (entry,) = live.report(run_id)["forks"]
    assert (entry["outcome"], entry["exit_code"], entry["reward"]) == ("failed", 7, 0.0)
    ended = debug.command(live.ports, PROJECT, fork_id, ("task",))
    with debug.output(live.ports, ended, "stdout", 0).source as kept:
        assert kept.read().decode() == whole


@pytest.mark.parametrize(
    ("change", "state", "code", "said"),
    [
        ({"test": sh("echo broken; exit 7")}, "refused", "snapshot_refused", "exit code 7"),
        ({"test": sh("sleep 600", limit_s=1)}, "refused", "snapshot_refused", "time limit"),
        ({"setup": (sh("ls /nowhere"),)}, "failed", "setup_failed", "exit code 1"),
        ({"setup": (sh("sleep 600", limit_s=1),)}, "failed", "setup_failed", "limit of 1 s"),
        ({"on_fork": (sh("exit 5"),)}, "refused", "snapshot_refused", "on_fork"),
        ({"image": "zeros"}, "failed", "template_failed", "super-block"),
    ],
    ids=["test fails", "test hangs", "set-up fails", "set-up hangs", "hook fails", "no root disk"],
)
def test_what_cannot_pass_is_not_stored(
    live: Live, change: dict[str, Any], state: str, code: str, said: str
) -> None:
    stored = live.host.bundles.known()
    page = live.built(suite(name="broken", repeat=1, **change))
    assert (page["state"], page["error"]["code"]) == (state, code), page
    assert said in page["error"]["message"]
    assert live.host.bundles.known() == stored
    assert [each.name for each in live.ports.snapshots.list(PROJECT)] == ["suite"]


def states(live: Live, run_id: str) -> set[ForkState]:
    return {fork.state for fork in live.ports.runs.forks(run_id)}


def done(live: Live, row: Exec) -> Exec:
    """The row once its command or file has ended."""

    def now() -> Exec:
        return live.ports.execs.get(PROJECT, row.fork_id, row.exec_id)

    live.until(lambda: now().state is ExecState.ENDED, 30)
    return now()


def seen(fork: dict[str, Any], name: str) -> str:
    (check,) = (check for check in fork["checks"] if check["name"] == name)
    return str(check["seen"])


def shut(live: Live) -> None:
    """As if three forks in a row had broken here, and the pause were over."""
    (bundle_id,) = live.host.bundles.mounted()
    kinds = (FailureKind.RESTORE_FAILED,)
    held = Quarantine("it broke 3 forks in a row", kinds, (bundle_id,), since_ns=1, due_ns=1)
    with live.stores.database.write() as at:
        at.execute(update(hosts).values(quarantine=held))


def test_a_host_in_quarantine_brings_a_machine_up_by_itself_and_comes_back(live: Live) -> None:
    shut(live)
    (bundle_id,) = live.host.bundles.mounted()
    overlay = live.host.bundles.open(bundle_id).directory / "overlay.qcow2"
    away = overlay.rename(overlay.with_suffix(".away"))
    try:
        broken = selftest.run(live.ports, live.host)
    finally:
        away.rename(overlay)
    assert broken is not None
    assert not broken.released
    assert "restore_failed" in broken.seen or "snapshot" in broken.seen
    assert live.host.machines.known() == ()
    assert live.ports.hosts.list()[0].quarantine is not None

    shut(live)
    found = selftest.run(live.ports, live.host)
    assert found is not None
    assert found.released, found.seen
    assert live.host.machines.known() == ()
    assert live.ended(step("true"))["totals"]["passed"] == 1


def test_machines_that_no_row_owns_are_ended_and_one_at_work_is_not(live: Live, host: Host) -> None:
    run_id = live.start(replace(step(""), exec=None, hold_ns=600 * 10**9, verify_each=False))
    live.until(lambda: states(live, run_id) == {ForkState.READY}, 60)
    (fork,) = live.ports.runs.forks(run_id)
    machines, root = live.host.machines, host.root
    bundle = live.host.bundles.open(live.host.bundles.mounted()[0])
    now_ns = live.ports.clock.boot_ns()
    deadline = Deadline(now_ns + 120 * 10**9, now_ns + 30 * 10**9)
    unowned = machines.restore("att_unowned", bundle, deadline)
    homeless = machines.restore("att_homeless", bundle, deadline)
    shutil.rmtree(root / "att_homeless")
    testing = machines.restore(trial_name(now_ns, deadline.boot_ns, "ab12"), bundle, deadline)

    counted: list[LeakKind] = []
    traces = HostTraces(root.parent, Path("keeper"))
    reaper = host_reaper(live.ports, live.host, traces, counted.append)
    reaper.turn()
    assert not lives(unowned.pid)
    assert lives(homeless.pid)
    reaper.turn()
    assert not any(map(lives, (homeless.pid, homeless.keeper_pid)))
    assert sorted(counted) == [LeakKind.MACHINE, LeakKind.PROCESS, LeakKind.PROCESS]
    assert set(machines.known()) == {fork.attempt_id, testing.name}

    machines.kill(testing.name)
    machines.forget(testing.name)
    said = done(live, hold.exec(live.ports, PROJECT, fork.fork_id, sh("echo here"), None))
    assert said.result is not None
    assert said.result.stdout == "here\n"
    hold.release(live.ports, PROJECT, fork.fork_id, None, None)
    live.until(lambda: live.report(run_id)["final"], 30)


def lives(pid: int) -> bool:
    """Whether a process stands anywhere: one that was killed and not waited for yet does not."""
    try:
        Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return False
    return True
