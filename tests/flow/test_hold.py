"""Held forks: commands, files, release, and what becomes of a trainer that stalls."""

from __future__ import annotations

from dataclasses import replace
from typing import BinaryIO

import pytest

from app.domain.machine import Command
from app.domain.run import Exec, ExecState
from app.errors import Conflict, EnvironmentFault, FailureKind, NotFound, NotYet, Unavailable
from app.flow import collect, hold, recover
from infra.fakes.guest import FakeGuest
from tests.flow.stage import PROJECT, Stage, sim, spec


@pytest.fixture
def held(suite: Stage) -> tuple[Stage, str, str]:
    """A stage, and a held fork of a run of two, ready."""
    run_id = suite.start(spec(exec=None, hold_ns=600 * 1_000_000_000))
    suite.run_for(2)
    fork = suite.ports.runs.forks(run_id)[0]
    assert fork.state.value == "ready"
    return suite, run_id, fork.fork_id


def done(stage: Stage, row: Exec) -> Exec:
    for _ in range(100):
        stage.tick()
        now = stage.ports.execs.get(PROJECT, row.fork_id, row.exec_id)
        if now.state in (ExecState.ENDED, ExecState.LOST):
            return now
        stage.clock.advance(1)
    raise AssertionError(f"{row.exec_id} did not end")


def test_commands_one_after_another(held: tuple[Stage, str, str]) -> None:
    stage, _, fork_id = held
    for number in range(3):
        row = hold.exec(
            stage.ports, PROJECT, fork_id, sim(f"0.1s print n{number} exit {number}"), None
        )
        ended = done(stage, row)
        assert ended.result is not None
        assert (ended.result.exit_code, ended.result.stdout) == (number, f"n{number}\n")
    assert stage.ports.runs.fork(PROJECT, fork_id).state.value == "ready"


def test_a_time_limit_is_a_result(held: tuple[Stage, str, str]) -> None:
    stage, _, fork_id = held
    ended = done(
        stage, hold.exec(stage.ports, PROJECT, fork_id, sim("90s print x", timeout_s=5), None)
    )
    assert ended.result is not None
    assert (ended.result.timed_out, ended.result.exit_code) == (True, None)
    assert ended.result.stdout == "x\n"


def test_the_same_id_is_the_same_command(held: tuple[Stage, str, str]) -> None:
    stage, _, fork_id = held
    first = hold.exec(stage.ports, PROJECT, fork_id, sim("1s"), "mine")
    done(stage, first)
    hold.exec(stage.ports, PROJECT, fork_id, sim("1s"), "mine")
    stage.run_for(5)
    assert stage.world.starts["mine"] == 1
    with pytest.raises(Conflict) as refused:
        hold.exec(stage.ports, PROJECT, fork_id, sim("2s"), "mine")
    assert refused.value.code == "exec_id_taken"


class Interrupted(Exception):
    """The worker process ends here: nothing after it happens."""


@pytest.mark.parametrize("claim", ["host0/1", "host0/2"], ids=["collects it", "adopts its machine"])
def test_a_command_is_refused_also_by_the_worker_that_comes_between(
    held: tuple[Stage, str, str], claim: str
) -> None:
    """One worker intended it and ended; the guest refuses it to the next, and the fork is as it was."""
    stage, _, fork_id = held

    class Dying(FakeGuest):
        def start(self, name: str, exec_id: str, command: Command) -> None:
            raise Interrupted

    well = stage.host
    stage.hosts["host0"] = replace(well, guest=Dying(stage.world))
    row = hold.exec(stage.ports, PROJECT, fork_id, sim("1s"), None)
    with pytest.raises(Interrupted):
        stage.run_for(1)
    stage.hosts["host0"] = replace(well, claim=claim)
    stage.world.fault("start", FailureKind.EXEC_NOT_STARTED)
    recover.adopt(stage.ports, stage.host)
    ended = done(stage, row)
    assert ended.result is not None
    assert ended.result.error == ("bad_request", "planted in start")
    assert stage.ports.runs.fork(PROJECT, fork_id).state.value == "ready"


def test_a_machine_is_looked_at_while_a_file_is_on_its_way(held: tuple[Stage, str, str]) -> None:
    """The guest knows nothing of it; that is no sign of anything."""
    stage, _, fork_id = held
    sha256 = stage.put(b"content")

    class Looking(FakeGuest):
        def upload(self, name: str, source: BinaryIO, guest_path: str, mode: int = 0o644) -> int:
            collect.collect(stage.ports, stage.host, name)
            return super().upload(name, source, guest_path, mode)

    stage.hosts["host0"] = replace(stage.host, guest=Looking(stage.world))
    row = hold.upload(stage.ports, PROJECT, fork_id, "/tmp/a", sha256, 0o644)
    ended = done(stage, row)
    assert ended.result is not None
    assert (ended.result.exit_code, ended.result.error) == (0, None)
    assert stage.ports.runs.fork(PROJECT, fork_id).state.value == "ready"


class Breaking(FakeGuest):
    """A guest to which files do not get; whether it answers is its machine's."""

    kind = FailureKind.GUEST_LOST

    def upload(self, name: str, source: BinaryIO, guest_path: str, mode: int = 0o644) -> int:
        raise EnvironmentFault(self.kind, "the channel broke")


@pytest.mark.parametrize("kind", [FailureKind.GUEST_LOST, FailureKind.GUEST_HUNG])
def test_a_channel_that_breaks_under_a_file_ends_no_fork(
    held: tuple[Stage, str, str], kind: FailureKind
) -> None:
    stage, _, fork_id = held
    sha256, well = stage.put(b"content"), stage.host
    broken = Breaking(stage.world)
    broken.kind = kind
    stage.hosts["host0"] = replace(well, guest=broken)
    row = hold.upload(stage.ports, PROJECT, fork_id, "/tmp/a", sha256, 0o644)
    ended = done(stage, row)
    assert ended.result is not None
    assert ended.result.error == ("unavailable", "the channel broke")
    stage.hosts["host0"] = well
    again = done(stage, hold.upload(stage.ports, PROJECT, fork_id, "/tmp/a", sha256, 0o644))
    assert again.result is not None
    assert (again.result.exit_code, again.result.error) == (0, None)
    assert stage.ports.runs.fork(PROJECT, fork_id).state.value == "ready"


def test_a_file_that_does_not_get_to_a_machine_that_is_silent_ends_its_fork(
    held: tuple[Stage, str, str],
) -> None:
    stage, _, fork_id = held
    stage.hosts["host0"] = replace(stage.host, guest=Breaking(stage.world))
    fork = stage.ports.runs.fork(PROJECT, fork_id)
    stage.world.hang(fork.attempt_id or "")
    row = hold.upload(stage.ports, PROJECT, fork_id, "/tmp/a", stage.put(b"content"), 0o644)
    assert done(stage, row).state is ExecState.LOST
    assert stage.ports.runs.fork(PROJECT, fork_id).state.value == "ended"


def test_a_file_for_which_its_host_has_no_room_is_told_so(
    held: tuple[Stage, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, _, fork_id = held
    sha256 = stage.put(b"content")
    done(stage, hold.upload(stage.ports, PROJECT, fork_id, "/tmp/a", sha256, 0o644))

    def full(*_: object, **__: object) -> None:
        raise Unavailable("blobs_away", "files cannot be kept: no space")

    monkeypatch.setattr(stage.ports.blobs, "put", full)
    down = done(stage, hold.download(stage.ports, PROJECT, fork_id, "/tmp/a"))
    assert down.result is not None
    assert down.result.error == ("unavailable", "files cannot be kept: no space")
    assert stage.ports.runs.fork(PROJECT, fork_id).state.value == "ready"


def test_a_command_that_cannot_start_is_refused_and_the_fork_lives(
    held: tuple[Stage, str, str],
) -> None:
    stage, _, fork_id = held
    stage.world.fault("start", FailureKind.EXEC_NOT_STARTED)
    ended = done(stage, hold.exec(stage.ports, PROJECT, fork_id, sim("1s"), None))
    assert ended.result is not None
    assert ended.result.error == ("bad_request", "planted in start")
    again = done(stage, hold.exec(stage.ports, PROJECT, fork_id, sim("1s exit 4"), None))
    assert again.result is not None
    assert again.result.exit_code == 4


def test_eight_at_once_and_no_more(held: tuple[Stage, str, str]) -> None:
    stage, _, fork_id = held
    for _ in range(8):
        hold.exec(stage.ports, PROJECT, fork_id, sim("30s"), None)
    with pytest.raises(NotYet) as refused:
        hold.exec(stage.ports, PROJECT, fork_id, sim("30s"), None)
    assert refused.value.code == "too_many_execs"


def test_files_go_both_ways(held: tuple[Stage, str, str]) -> None:
    stage, _, fork_id = held
    sha256 = stage.put(b"content")
    up = done(stage, hold.upload(stage.ports, PROJECT, fork_id, "/tmp/file", sha256, 0o600))
    assert up.result is not None
    assert up.result.error is None
    down = done(stage, hold.download(stage.ports, PROJECT, fork_id, "/tmp/file"))
    assert down.file is not None
    assert (down.file.sha256, down.file.size_bytes) == (sha256, 7)
    missing = done(stage, hold.download(stage.ports, PROJECT, fork_id, "/nothing"))
    assert missing.result is not None
    assert missing.result.error is not None
    assert missing.result.error[0] == "not_found"
    assert stage.ports.runs.fork(PROJECT, fork_id).state.value == "ready"


@pytest.mark.parametrize(
    ("passed", "reward", "outcome", "value"),
    [
        (True, None, "passed", 1.0),
        (False, None, "failed", 0.0),
        (None, None, "released", None),
        (True, 0.25, "passed", 0.25),
        (None, 0.5, "released", 0.5),
    ],
)
def test_release(
    held: tuple[Stage, str, str],
    passed: bool | None,
    reward: float | None,
    outcome: str,
    value: float | None,
) -> None:
    stage, run_id, fork_id = held
    hold.release(stage.ports, PROJECT, fork_id, passed, reward)
    hold.release(stage.ports, PROJECT, fork_id, passed, reward)
    stage.run_for(2)
    hold.release(stage.ports, PROJECT, fork_id, passed, reward)
    with pytest.raises(Conflict) as refused:
        hold.release(stage.ports, PROJECT, fork_id, passed, 0.125)
    assert refused.value.code == "already_released"
    entry = stage.report(run_id)["forks"][0]
    assert (entry["outcome"], entry["reward"]) == (outcome, value)
    assert entry["reward_valid"] is (value is not None)


def test_a_hold_that_runs_out_is_no_zero(held: tuple[Stage, str, str]) -> None:
    stage, run_id, _ = held
    page = stage.run_until_final(run_id)
    for fork in page["forks"]:
        assert (fork["outcome"], fork["reason"]) == ("released", "hold_expired")
        assert (fork["reward"], fork["reward_valid"]) == (None, False)
    assert page["cost"]["total_usd"] <= page["cost"]["spend_cap_usd"]


def test_a_hold_that_runs_out_with_no_billing_worker_buys_no_other_machine(suite: Stage) -> None:
    run_id = suite.start(spec(count=1, exec=None, hold_ns=60 * 1_000_000_000))
    suite.run_for(200, billing=False)
    page = suite.report(run_id)
    (fork,) = page["forks"]
    assert (fork["outcome"], fork["reason"]) == ("released", "hold_expired")
    assert (fork["attempts"], page["environment_failures"]) == (1, [])


def test_a_lost_machine_is_never_an_exit_code(held: tuple[Stage, str, str]) -> None:
    stage, run_id, fork_id = held
    ended = done(stage, hold.exec(stage.ports, PROJECT, fork_id, sim("2s crash"), None))
    assert ended.state is ExecState.LOST
    assert ended.failure is not None
    assert ended.failure.kind.value == "guest_lost"
    with pytest.raises(Conflict) as refused:
        hold.exec(stage.ports, PROJECT, fork_id, sim("1s"), None)
    assert refused.value.code == "environment_failure"
    assert stage.report(run_id)["forks"][0]["outcome"] == "env_failed"


def test_forks_that_are_not_there_or_not_held(suite: Stage) -> None:
    with pytest.raises(NotFound):
        hold.exec(suite.ports, PROJECT, "fork_none", sim("1s"), None)
    run_id = suite.start(spec("50s", count=1))
    suite.run_for(2)
    fork = suite.ports.runs.forks(run_id)[0]
    with pytest.raises(Conflict) as refused:
        hold.exec(suite.ports, PROJECT, fork.fork_id, sim("1s"), None)
    assert refused.value.code == "fork_not_held"
