"""The command line against the wire: what it asks for, what it prints where, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from promigence.cli import app
from promigence.cli.exits import ExitCode
from promigence.types import Outcome
from tests.sdk import shapes
from tests.sdk.wire import FakeTime, Wire, client_of, ok, refused, unreachable

Cli = Callable[..., Result]


@pytest.fixture
def cli(wire: Wire, time: FakeTime) -> Cli:
    def run(*args: str) -> Result:
        result = CliRunner().invoke(app, args, obj=lambda: client_of(wire, time))
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        return result

    return run


def final(*outcomes: Outcome) -> tuple[Any, Any]:
    """The last look at a run with these outcomes, and its report."""
    rewards = {"passed": 1.0, "failed": 0.0, "timed_out": 0.0}
    forks = [shapes.fork_report(n, one, rewards.get(one)) for n, one in enumerate(outcomes)]
    counts: dict[str, int] = {one: outcomes.count(one) for one in outcomes}
    return ok(shapes.run("r-1", **counts)), ok(shapes.report(*forks))


START = ("runs", "start", "task-suite", "--count", "2", "--spend-cap", "1")


def test_start_follows_the_run_and_ends_with_its_report(cli: Cli, wire: Wire) -> None:
    wire.will(ok(shapes.started(), 201), ok(shapes.waiting_run(1, 1)))
    wire.will(*final("passed", "passed"))
    result = cli(*START, "--verify-each", "--sh", "make test")
    assert result.exit_code == 0
    assert wire.body(0) == {
        "snapshot": "task-suite",
        "count": 2,
        "spend_cap": 1.0,
        "verify_each": True,
        "exec": {"sh": "make test"},
    }
    assert "started r-1" in result.stderr
    assert "at most $0.200000" in result.stderr
    assert "r-1: 0/2 | 1 queued, 1 running; cost $0.012000 of at most $0.200000" in result.stderr
    assert "r-1: 2/2: 2 passed; cost" in result.stderr
    assert "2/2: 2 passed" in result.stdout


def test_with_json_stdout_is_one_document(cli: Cli, wire: Wire) -> None:
    wire.will(ok(shapes.started(), 201), *final("passed"))
    result = cli(*START, "--sh", "true", "--json")
    told = json.loads(result.stdout)
    assert told["run_id"] == "r-1"
    assert told["totals"]["passed"] == 1
    assert told["quote"] == shapes.quote()
    assert "r-1: 1/1" in result.stderr


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (["passed", "released"], ExitCode.OK),
        (["passed", "failed"], ExitCode.TASK_FAILED),
        (["timed_out"], ExitCode.TASK_FAILED),
        (["failed", "env_failed"], ExitCode.ENVIRONMENT_FAILED),
        (["failed", "capped"], ExitCode.CAPPED),
        (["capped", "env_failed"], ExitCode.ENVIRONMENT_FAILED),
        (["passed", "cancelled"], ExitCode.ERROR),
        (["failed", "cancelled"], ExitCode.TASK_FAILED),
    ],
)
def test_the_exit_code_says_how_a_run_ended(
    outcomes: list[Outcome], code: ExitCode, cli: Cli, wire: Wire
) -> None:
    run, report = final(*outcomes)
    wire.will(run, report)
    assert cli("runs", "wait", "r-1", "--json").exit_code == code
    wire.will(final(*outcomes)[1])
    assert cli("runs", "report", "r-1", "--json").exit_code == code


def test_every_option_of_a_step_goes_out_under_its_name(cli: Cli, wire: Wire) -> None:
    wire.will(ok(shapes.started(), 201))
    result = cli(
        *START,
        *("--cwd", "/w", "--env", "A=1", "--env", "B=x=y", "--user", "agent", "--timeout", "60"),
        *("--environment-exit-code", "75", "--grade-sh", "grade", "--grade-timeout", "30"),
        *("--grade-user", "eve", "--grade-result-required", "--no-verify-each", "--rerun-started"),
        *("--environment-retries", "0", "--guest-faults", "task", "--egress", "policy:8000"),
        *("--label", "step=17", "--queue-timeout", "9", "--quote-id", "q-1"),
        *("--idempotency-key", "k-1", "--detach"),
        *("--", "python", "-m", "rollout"),
    )
    assert result.exit_code == 0
    assert result.stdout == "r-1\n"
    assert wire.keys() == ["k-1"]
    assert wire.body() == {
        "snapshot": "task-suite",
        "count": 2,
        "spend_cap": 1.0,
        "verify_each": False,
        "exec": {
            "argv": ["python", "-m", "rollout"],
            "cwd": "/w",
            "env": {"A": "1", "B": "x=y"},
            "user": "agent",
            "timeout_seconds": 60.0,
            "environment_exit_codes": [75],
        },
        "grade": {"sh": "grade", "timeout_seconds": 30.0, "user": "eve", "result_required": True},
        "environment_retries": 0,
        "rerun_started": True,
        "guest_faults": "task",
        "egress": ["policy:8000"],
        "labels": {"step": "17"},
        "queue_timeout_seconds": 9.0,
        "quote_id": "q-1",
    }


def test_a_step_of_groups_comes_from_a_file(cli: Cli, wire: Wire, tmp_path: Path) -> None:
    groups = [{"snapshot": "a@3", "count": 16, "key": "prompt-17"}]
    (tmp_path / "groups.json").write_text(json.dumps(groups))
    wire.will(ok(shapes.quote()))
    result = cli(
        *("runs", "quote", "--groups", str(tmp_path / "groups.json"), "--spend-cap", "1"),
        *("--", "make", "test"),
    )
    assert result.exit_code == 0
    assert wire.body() == {
        "groups": groups,
        "spend_cap": 1.0,
        "exec": {"argv": ["make", "test"]},
    }
    assert "at most $0.200000" in result.stdout


@pytest.mark.parametrize(
    "args",
    [
        ("runs", "start", "--count", "2"),
        ("runs", "start", "a", "--cuont", "2"),
        ("runs", "start", "a", "--count", "two"),
        ("runs", "start", "a", "--sh", "x", "--", "y"),
        ("runs", "start", "a", "--cwd", "/w"),
        ("runs", "start", "a", "--sh", "x", "--env", "novalue"),
        ("runs", "start", "a", "--sh", "x", "--grade-timeout", "3"),
        ("runs", "start", "a", "--sh", "x", "--grade-user", "grader"),
        ("runs", "start", "--groups", "/nothing/there.json"),
        ("runs", "list", "--label", "=x"),
        ("forks", "exec", "f-1"),
        ("forks", "upload", "f-1", "a", "/a", "--mode", "rwx"),
        ("forks", "upload", "f-1", "/nothing/there", "/a"),
        ("snapshots", "build", "/nothing/there.toml"),
        ("runs", "report", ".."),
        ("nonsense",),
    ],
    ids=" ".join,
)
def test_bad_usage_is_told_before_anything_is_sent(
    args: tuple[str, ...], cli: Cli, wire: Wire
) -> None:
    result = cli(*args)
    assert result.exit_code == ExitCode.BAD_USAGE
    assert result.stdout == ""
    assert result.stderr
    assert wire.asked == []


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (refused(400, "cap_too_small"), ExitCode.BAD_USAGE),
        (refused(404, "unknown_snapshot"), ExitCode.BAD_USAGE),
        (refused(401, "unauthorized"), ExitCode.ERROR),
        (refused(403, "egress_not_allowed"), ExitCode.ERROR),
        (refused(409, "quote_expired"), ExitCode.ERROR),
        (
            refused(
                409,
                "environment_failure",
                details={"failure": shapes.failure(), "fork_id": "f-1"},
            ),
            ExitCode.ENVIRONMENT_FAILED,
        ),
    ],
)
def test_an_error_has_its_exit_code_and_is_json_when_asked(
    reply: Any, code: ExitCode, cli: Cli, wire: Wire
) -> None:
    wire.will(reply)
    result = cli(*START, "--sh", "true", "--json")
    assert result.exit_code == code
    told = json.loads(result.stdout)["error"]
    assert told["request_id"] == "req-9"
    assert f"about {told['code']}" in result.stderr


def test_no_server_is_told_with_its_address(cli: Cli, wire: Wire) -> None:
    wire.will(*(unreachable() for _ in range(5)))
    result = cli("hosts")
    assert result.exit_code == ExitCode.ERROR
    assert "cannot reach http://promigence.test" in result.stderr


def test_missing_settings_are_bad_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMIGENCE_API_KEY", raising=False)
    monkeypatch.delenv("PROMIGENCE_BASE_URL", raising=False)
    result = CliRunner().invoke(app, ["hosts"])
    assert result.exit_code == ExitCode.BAD_USAGE
    assert "PROMIGENCE_BASE_URL is not set" in result.stderr
    assert ".promigence/env" in result.stderr


def test_a_report_tells_of_the_forks_that_did_not_pass(cli: Cli, wire: Wire) -> None:
    lost = shapes.fork_report(1, "env_failed")
    failed = shapes.fork_report(2, "failed", 0.0)
    failed["stderr_tail"] = "a\nE   assert \x1b[31m1 == 2\x1b[0m [bold]\n"
    wire.will(ok(shapes.report(shapes.fork_report(0, "passed", 1.0), lost, failed)))
    result = cli("runs", "report", "r-1")
    assert "3/3: 1 passed, 1 failed, 1 env_failed" in result.stdout
    assert "guest_lost (exec): the machine's process died" in result.stdout
    assert "exit 1: E   assert �[31m1 == 2�[0m [bold]" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_ledger_is_read_line_by_line(cli: Cli, wire: Wire) -> None:
    wire.will(ok(shapes.ledger()), ok(shapes.ledger()))
    result = cli("runs", "ledger", "r-1")
    assert "budget $0.200000: charged $0.001000, granted $0.000000, pool $0.199000" in result.stdout
    assert "return" in result.stdout
    assert "+0.199000  -0.199000" in result.stdout
    assert json.loads(cli("runs", "ledger", "r-1", "--json").stdout) == shapes.ledger()


def test_what_a_run_waits_for_is_said(cli: Cli, wire: Wire) -> None:
    look = shapes.waiting_run(12, 8, "12 forks wait for a slot")
    wire.will(ok(look), *final("passed"))
    result = cli("runs", "wait", "r-1")
    assert "12 queued" in result.stderr
    assert "12 forks wait for a slot" in result.stderr


def test_a_wait_that_times_out_says_how_to_come_back(cli: Cli, wire: Wire, time: FakeTime) -> None:
    wire.will(*(ok(shapes.run(pending=1)) for _ in range(3)))
    result = cli("runs", "wait", "r-1", "--timeout", "0.5")
    assert result.exit_code == ExitCode.ERROR
    assert "promigence runs wait r-1" in result.stderr
    assert "goes on" in result.stderr


def test_runs_are_listed_and_cancelled(cli: Cli, wire: Wire) -> None:
    wire.will(
        ok({"runs": [shapes.run(passed=1)], "next_cursor": None}),
        ok(shapes.run(cancelled=1)),
        ok({"forks": [shapes.fork()], "next_cursor": None}),
    )
    listed = cli("runs", "list", "--label", "step=17")
    assert "r-1" in listed.stdout
    assert "step=17" in listed.stdout
    assert "1 cancelled" in cli("runs", "cancel", "r-1").stdout
    assert "ready" in cli("runs", "forks", "r-1").stdout
    assert wire.lines == [
        "GET /v1/runs?label=step%3D17&limit=20",
        "POST /v1/runs/r-1/cancel",
        "GET /v1/runs/r-1/forks?limit=500",
    ]


def test_a_command_in_a_held_fork_prints_what_it_printed(cli: Cli, wire: Wire) -> None:
    told = shapes.exec_result(7, stdout="out\n")
    told["stderr"] = "err\n"
    wire.will(ok(told))
    result = cli("forks", "exec", "f-1", "--cwd", "/w", "--", "ls", "-l")
    assert result.exit_code == ExitCode.TASK_FAILED
    assert result.stdout == "out\n"
    assert result.stderr == "err\nthe command's exit code is 7\n"
    assert {**wire.body(), "exec_id": None} == {
        "argv": ["ls", "-l"],
        "cwd": "/w",
        "exec_id": None,
    }


def test_a_commands_own_limit_is_told(cli: Cli, wire: Wire) -> None:
    wire.will(ok(shapes.exec_result(None)))
    result = cli("forks", "exec", "f-1", "--sh", "sleep 9", "--timeout", "1", "--json")
    assert result.exit_code == ExitCode.TASK_FAILED
    assert json.loads(result.stdout)["timed_out"] is True
    assert "past its own limit" in result.stderr


def test_files_go_up_and_come_down(cli: Cli, wire: Wire, tmp_path: Path) -> None:
    local = tmp_path / "a"
    local.write_text("x")
    wire.will(ok({"bytes": 1, "sha256": "0" * 64}), ok({}))
    assert cli("forks", "upload", "f-1", str(local), "/a", "--mode", "755").exit_code == 0
    assert cli("forks", "download", "f-1", "/a", str(tmp_path / "b")).exit_code == 0
    assert wire.lines == [
        "PUT /v1/forks/f-1/files?path=%2Fa&mode=0755",
        "GET /v1/forks/f-1/files?path=%2Fa",
    ]
    assert (tmp_path / "b").read_text() == "{}"


@pytest.mark.parametrize(("grade", "passed"), [("passed", True), ("failed", False), ("none", None)])
def test_release_says_the_grade(grade: str, passed: bool | None, cli: Cli, wire: Wire) -> None:
    released = {
        "fork_id": "f-1",
        "outcome": "released",
        "reward": None,
        "reward_valid": False,
        "reason": "released",
    }
    wire.will(ok(released))
    assert cli("forks", "release", "f-1", "--grade", grade).exit_code == 0
    assert wire.body() == {"passed": passed, "reward": None}


def test_a_build_is_followed_line_by_line(cli: Cli, wire: Wire, tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_text('name = "task-suite"\nimage = "debian-12"\n')
    wire.will(
        ok(shapes.build("queued"), 202),
        ok(shapes.build("building", {"n": 1, "step": "setup", "text": "Successfully installed"})),
        ok(shapes.build("verified")),
        ok(shapes.snapshot()),
    )
    result = cli("snapshots", "build", str(path))
    assert result.exit_code == 0
    assert "[setup] Successfully installed" in result.stderr
    assert "task-suite@1  verified" in result.stdout


@pytest.mark.parametrize(
    ("state", "error_code", "code"),
    [
        ("refused", "snapshot_refused", ExitCode.ENVIRONMENT_FAILED),
        ("failed", "setup_failed", ExitCode.ENVIRONMENT_FAILED),
        ("failed", "build_capped", ExitCode.CAPPED),
        ("cancelled", "build_cancelled", ExitCode.ERROR),
    ],
)
def test_a_build_that_ends_without_a_snapshot(
    state: str, error_code: str, code: ExitCode, cli: Cli, wire: Wire
) -> None:
    build = shapes.build(state)
    details = {"check": "test", "output": "1 failed in 0.1s", "reproduce": "run it so"}
    build["error"] = {"code": error_code, "message": "it did not pass", "details": details}
    wire.will(ok(build))
    result = cli("snapshots", "wait", "b-1")
    assert result.exit_code == code
    for text in ("it did not pass", "1 failed in 0.1s", "run it so"):
        assert text in result.stderr


def test_a_misspelt_key_of_a_definition_is_named(cli: Cli, wire: Wire, tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_text('name = "a"\nimage = "b"\negres = []\n')
    result = cli("snapshots", "build", str(path), "--json")
    assert result.exit_code == ExitCode.BAD_USAGE
    assert "unknown key 'egres'; did you mean 'egress'?" in result.stderr
    assert json.loads(result.stdout)["error"]["code"] == "bad_definition"
    assert wire.asked == []


def test_snapshots_and_hosts_are_shown(cli: Cli, wire: Wire) -> None:
    wire.will(
        ok({"snapshots": [shapes.snapshot()], "next_cursor": None}),
        ok(shapes.snapshot(3)),
        ok({"deleted": ["task-suite@3"]}),
        ok({"hosts": [shapes.host()], "next_cursor": None}),
    )
    assert "task-suite@1" in cli("snapshots", "list").stdout
    assert "task-suite@3" in cli("snapshots", "get", "task-suite@3").stdout
    assert "deleted task-suite@3" in cli("snapshots", "delete", "task-suite@3").stdout
    assert "7/8" in cli("hosts").stdout


def test_the_exit_codes_are_told_by_the_command_itself(cli: Cli) -> None:
    told = cli("exit-codes").stdout
    for code in ExitCode:
        assert f"\n    {code.value} " in told


def test_version(cli: Cli) -> None:
    assert cli("--version").stdout.startswith("promigence 0.")
