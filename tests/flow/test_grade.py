"""A grade after its command: its file, its failures, its time, and what survives a worker that dies in between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.domain.machine import Command, CommandEnd, DeathCause
from app.domain.money import NS_PER_SECOND
from app.domain.run import Claimed, Exec, ExecPurpose, Group, GuestFaults
from app.domain.spec import timing
from app.errors import BadRequest, FailureKind, TooLarge
from app.flow import quote, recover
from app.ports.store import Execs
from infra.fakes.guest import FakeGuest
from tests.flow.stage import PROJECT, Stage, definition, sim, spec
from tests.flow.test_run import add_up


def graded(suite: Stage, grade: str, text: str = "1s exit 9", **more: Any) -> dict[str, Any]:
    """The one fork of a run with this grade."""
    given = spec(text, count=1, grade=sim(grade, **more.pop("told", {})), **more)
    page = suite.run_until_final(suite.start(given))
    add_up(page)
    (fork,) = page["forks"]
    assert (fork["reward"] is not None) == fork["reward_valid"]
    return dict(fork)


DECIDED = (
    ("1s", "passed", 1.0),
    ("1s exit 1", "failed", 0.0),
    ("1s exit 125", "failed", 0.0),
    ("""1s result '{"reward": 0.25}'""", "passed", 0.25),
    ("""1s result '{"reward": 0.75}' exit 1""", "failed", 0.75),
    ("""1s result '{"reward": -2}' exit 3""", "failed", -2.0),
)


def test_a_grade_decides_outcome_and_reward(suite: Stage) -> None:
    given = spec(
        groups=tuple(
            Group("task-suite", 1, key=grade, env=(("GRADE", grade),)) for grade, _, _ in DECIDED
        ),
        exec=sim("2s print rollout exit 9"),
        grade=sim("$GRADE"),
    )
    page = suite.run_until_final(suite.start(given))
    add_up(page)
    for fork, (grade, outcome, reward) in zip(page["forks"], DECIDED, strict=True):
        assert (fork["key"], fork["outcome"], fork["reward"]) == (grade, outcome, reward)
        assert (fork["exit_code"], fork["stdout_tail"], fork["seconds"]) == (9, "rollout\n", 2)
        assert fork["grade"]["reward"] == reward
        assert (fork["grade"]["valid"], fork["grade"]["seconds"]) == (True, 1)


def test_a_run_without_a_grade_has_none(suite: Stage) -> None:
    (fork,) = suite.run_until_final(suite.start(spec(count=1)))["forks"]
    assert fork["grade"] is None


def test_a_result_file_is_a_grades_alone(suite: Stage) -> None:
    """What the command itself writes under that word is nobody's reward."""
    fork = graded(suite, "1s exit 1", """1s result '{"reward": 1.0}'""")
    assert fork["reward"] == 0.0


def test_a_grade_runs_after_a_command_that_ran_out_of_time(suite: Stage) -> None:
    fork = graded(suite, """1s result '{"reward": 0.5}'""", "90s print late")
    assert (fork["outcome"], fork["reward"], fork["exit_code"]) == ("passed", 0.5, None)
    assert fork["seconds"] == 60


FAILING = (
    ("1s signal 11", "own_test_failed", "signal 11"),
    ("1s exit 126", "own_test_failed", "could not be run"),
    ("1s exit 127", "own_test_failed", "could not be run"),
    ("1s exit 139", "own_test_failed", "crashed"),
    ("90s", "own_test_failed", "time limit"),
    ("""1s result '{"reward": 1.0}' exit 137""", "own_test_failed", "crashed"),
    ("""90s result '{"reward": 1.0}'""", "own_test_failed", "time limit"),
    ("""1s result '{"reward": NaN}'""", "own_test_failed", "NaN"),
    ("""1s result '{"reward": 1e999}'""", "own_test_failed", "not finite"),
    ("""1s result '{"reward": true}'""", "own_test_failed", "not a number"),
    ("1s result ''", "own_test_failed", "not JSON"),
    ("1s result nothing exit 1", "own_test_failed", "not JSON"),
    ("""1s result '{"valid": false, "reason": "no judge"}'""", "reported_by_command", "no judge"),
    ("1s exit 75", "reported_by_command", "exit code 75"),
)


@pytest.mark.parametrize("faults", GuestFaults)
def test_a_grader_that_fails_is_never_a_zero(suite: Stage, faults: GuestFaults) -> None:
    given = spec(
        groups=tuple(
            Group("task-suite", 1, key=grade, env=(("GRADE", grade),)) for grade, _, _ in FAILING
        ),
        exec=sim("1s exit 9"),
        grade=sim("$GRADE", environment_exit_codes=(75,)),
        guest_faults=faults,
    )
    page = suite.run_until_final(suite.start(given))
    add_up(page)
    assert page["totals"]["env_failed"] == len(FAILING)
    for fork, (grade, kind, says) in zip(page["forks"], FAILING, strict=True):
        assert (fork["key"], fork["reward"], fork["reward_valid"]) == (grade, None, False)
        failure = fork["failure"]
        assert (failure["kind"], failure["phase"]) == (kind, "grade")
        assert failure["task_may_have_caused"] is (kind == "own_test_failed")
        assert says in failure["message"]
        assert {"exit_code", "signal", "timed_out", "stdout_tail"} <= failure["evidence"].keys()
        said = fork["grade"]
        assert (fork["exit_code"], said["valid"], said["reward"]) == (9, False, None)
        assert says in said["reason"]


@pytest.mark.parametrize("faults", GuestFaults)
def test_a_grade_that_is_killed_for_memory_is_an_environment_failure(
    suite: Stage, faults: GuestFaults
) -> None:
    class Short(FakeGuest):
        def end(self, name: str, exec_id: str, wait_s: float = 0.0) -> CommandEnd | None:
            end = super().end(name, exec_id, wait_s)
            is_grade = exec_id.startswith("grade_")
            return replace(end, victim_of_own_memory=True) if end is not None and is_grade else end

    suite.hosts["host0"] = replace(suite.host, guest=Short(suite.world))
    fork = graded(suite, "1s exit 137", guest_faults=faults)
    assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "guest_out_of_memory")
    assert (fork["failure"]["phase"], fork["reward"]) == ("grade", None)


def test_a_result_that_must_be_there_and_is_not(suite: Stage) -> None:
    required = {"result_required": True}
    for text in ("1s exit 1", "1s"):
        fork = graded(suite, text, told=required)
        assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "own_test_failed")
        assert "without writing its result" in fork["failure"]["message"]
    fork = graded(suite, """1s result '{"reward": 0}' exit 1""", told=required)
    assert (fork["outcome"], fork["reward"]) == ("failed", 0.0)


@pytest.mark.parametrize(
    "refusal", [TooLarge("file_too_large", "64 KiB"), BadRequest("not_a_file", "a link")]
)
def test_a_file_that_cannot_be_read_as_one_is_no_result(
    suite: Stage, refusal: BadRequest | TooLarge
) -> None:
    class Refusing(FakeGuest):
        def result(self, name: str, exec_id: str, limit_bytes: int) -> bytes | None:
            raise refusal

    suite.hosts["host0"] = replace(suite.host, guest=Refusing(suite.world))
    fork = graded(suite, "1s")
    assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "own_test_failed")
    assert refusal.message in fork["failure"]["message"]


def test_a_failed_grade_is_a_reason_to_run_all_of_it_again_where_that_is_allowed(
    suite: Stage,
) -> None:
    suite.world.spoil("grade_", "1s exit 139")
    fork = graded(suite, "1s", rerun_started=True, environment_retries=1)
    assert (fork["outcome"], fork["reward"], fork["attempts"]) == ("passed", 1.0, 2)
    purposes = [name.partition("_")[0] for name in suite.world.starts]
    assert purposes.count("task") - 3 == purposes.count("grade") == 2  # three of the build


def test_a_grade_that_cannot_start_is_an_environment_failure(suite: Stage) -> None:
    run_id = suite.start(spec("3s", count=1, grade=sim("1s")))
    suite.run_for(2)
    suite.world.fault("start", FailureKind.EXEC_NOT_STARTED)
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["failure"]["kind"]) == ("env_failed", "exec_not_started")
    assert fork["failure"]["phase"] == "grade"


@pytest.mark.parametrize(
    ("fate", "kind"),
    [
        ("crash", "guest_lost"),
        ("panic", "guest_panicked"),
        ("poweroff", "guest_lost"),
        ("hang", "guest_hung"),
        ("diskfull", "host_disk_full"),
    ],
)
def test_a_machine_that_is_lost_in_its_grade(suite: Stage, fate: str, kind: str) -> None:
    fork = graded(suite, f"2s {fate}", "1s print rollout exit 9")
    assert (fork["outcome"], fork["reward"], fork["grade"]) == ("env_failed", None, None)
    failure = fork["failure"]
    assert (failure["kind"], failure["phase"]) == (kind, "grade")
    assert failure["task_may_have_caused"] is (kind.startswith("guest_"))
    assert (fork["exit_code"], fork["stdout_tail"]) == (9, "rollout\n")


def test_a_command_that_the_environment_spoilt_is_not_graded(suite: Stage) -> None:
    given = spec(count=1, exec=sim("1s exit 75", environment_exit_codes=(75,)), grade=sim("1s"))
    (fork,) = suite.run_until_final(suite.start(given))["forks"]
    assert (fork["outcome"], fork["failure"]["phase"]) == ("env_failed", "exec")
    assert not any(name.startswith("grade_") for name in suite.world.starts)


def test_what_spoilt_the_command_is_not_held_against_its_grade(suite: Stage) -> None:
    """It passed although a target was away for a while; its grade needs none."""
    run_id = suite.start(spec("5s exit 0", count=1, grade=sim("2s exit 1")))
    suite.run_for(2)
    (name,) = [name for name, box in suite.world.boxes.items() if box.jobs]
    suite.world.lose_egress(name, "policy.internal:8000", "refused by the target")
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["reward"]) == ("failed", 0.0)


def test_a_grade_is_started_once_when_its_worker_dies_before_its_intent(suite: Stage) -> None:
    """The command's result is saved, the worker is gone: the one after it grades, and runs no command again."""
    run_id = suite.start(spec("2s exit 9", count=1, grade=sim("3s exit 0")))
    well = suite.ports
    suite.ports = replace(well, execs=DiesBeforeGrades(well.execs))
    with pytest.raises(WorkerKilled):
        suite.run_for(10)
    suite.ports = well
    _next_worker(suite)
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["reward"], fork["exit_code"]) == ("passed", 1.0, 9)
    _each_started_once(suite)


def test_a_grade_is_started_once_when_its_worker_dies_after_its_intent(suite: Stage) -> None:
    run_id = suite.start(spec("2s exit 9", count=1, grade=sim("3s exit 0")))

    class Dying(FakeGuest):
        def start(self, name: str, exec_id: str, command: Command) -> None:
            if command.grades is not None:
                raise WorkerKilled
            super().start(name, exec_id, command)

    well = suite.host
    suite.hosts["host0"] = replace(well, guest=Dying(suite.world))
    with pytest.raises(WorkerKilled):
        suite.run_for(10)
    suite.hosts["host0"] = well
    _next_worker(suite)
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["reward"], fork["exit_code"]) == ("passed", 1.0, 9)
    _each_started_once(suite)


def test_a_result_is_read_again_by_the_worker_after_one_that_died_reading(suite: Stage) -> None:
    run_id = suite.start(
        spec("2s exit 9", count=1, grade=sim("""3s result '{"reward": 0.4}' exit 1"""))
    )

    class Dying(FakeGuest):
        def result(self, name: str, exec_id: str, limit_bytes: int) -> bytes | None:
            super().result(name, exec_id, limit_bytes)
            raise WorkerKilled

    well = suite.host
    suite.hosts["host0"] = replace(well, guest=Dying(suite.world))
    with pytest.raises(WorkerKilled):
        suite.run_for(10)
    suite.hosts["host0"] = well
    _next_worker(suite)
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["reward"]) == ("failed", 0.4)
    _each_started_once(suite)


def test_a_saved_grade_outlives_its_machine(suite: Stage) -> None:
    """The worker dies between the saved grade and the end of the machine, and then the machine dies too."""
    run_id = suite.start(spec("2s exit 9", count=1, grade=sim("""3s result '{"reward": 0.4}'""")))

    class Dying(type(suite.host.machines)):  # type: ignore[misc]
        def kill(self, name: str) -> object:
            raise WorkerKilled

    well = suite.host
    suite.hosts["host0"] = replace(well, machines=Dying(suite.world, "host0"))
    with pytest.raises(WorkerKilled):
        suite.run_for(10)
    suite.hosts["host0"] = well
    (name,) = [name for name, box in suite.world.boxes.items() if box.jobs and box.death is None]
    suite.world.die(name, DeathCause.SIGNAL, 9)
    _next_worker(suite)
    (fork,) = suite.run_until_final(run_id)["forks"]
    assert (fork["outcome"], fork["reward"]) == ("passed", 0.4)


def test_a_lost_answer_while_the_result_is_read_loses_nothing(suite: Stage) -> None:
    suite.world.fault("result", FailureKind.GUEST_LOST, times=2)
    fork = graded(suite, """1s result '{"reward": 0.4}'""")
    assert (fork["outcome"], fork["reward"]) == ("passed", 0.4)


def test_the_grades_time_is_in_quote_and_lease(suite: Stage) -> None:
    """A command and a grade that both need nearly all of their limits, on a cap that is just the worst case."""
    given = spec(
        "59s exit 9",
        count=1,
        exec=sim("59s exit 9", timeout_s=60),
        grade=sim("99s exit 0", timeout_s=100),
        environment_retries=0,
    )
    without = timing(replace(given, grade=None), definition())
    with_grade = timing(given, definition())
    assert with_grade.attempt_ns - without.attempt_ns == 100 * NS_PER_SECOND
    quoted = quote.quote(suite.ports, PROJECT, given)
    assert quoted.funded_ns >= 160 * NS_PER_SECOND
    tight = replace(given, cap_micros=quoted.worst_micros)
    (fork,) = suite.run_until_final(suite.start(tight))["forks"]
    assert (fork["outcome"], fork["grade"]["seconds"]) == ("passed", 99)


class WorkerKilled(Exception):
    """The worker process ends here: nothing after it happens."""


class DiesBeforeGrades:
    """The rows of commands, for a worker that ends at the moment at which it would begin a grade."""

    def __init__(self, rows: Execs) -> None:
        self._rows = rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    def intend(self, claimed: Claimed, asked: Exec) -> Exec | None:
        if asked.purpose is ExecPurpose.GRADE:
            raise WorkerKilled
        return self._rows.intend(claimed, asked)


def _next_worker(suite: Stage) -> None:
    """Another worker process of the same host takes its machines over."""
    suite.bells.waiting.clear()
    suite.hosts["host0"] = replace(suite.host, claim="host0/2")
    recover.adopt(suite.ports, suite.host)


def _each_started_once(suite: Stage) -> None:
    assert set(suite.world.starts.values()) == {1}
    purposes = [name.partition("_")[0] for name in suite.world.starts]
    assert purposes.count(ExecPurpose.GRADE.value) == 1
