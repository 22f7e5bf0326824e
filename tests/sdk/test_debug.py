"""Looking into one fork: what is asked for, what is told, and what a person reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from promigence import BadRequest, Conflict, EnvironmentFailure, NotFound, Promigence, WaitTimeout
from promigence.cli import app
from promigence.errors import BadAnswer
from promigence.types import ForkCommand, ForkPage, HeldExec
from tests.sdk import shapes
from tests.sdk.wire import FakeTime, Wire, client_of, ok, refused

Cli = Callable[..., Result]
COMMAND: HeldExec = {"sh": "make test", "cwd": "/w", "env": {"TOKEN": "s3cret"}, "user": "dev"}


@pytest.fixture
def cli(wire: Wire, time: FakeTime) -> Cli:
    def run(*args: str) -> Result:
        result = CliRunner().invoke(app, args, obj=lambda: client_of(wire, time))
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        return result

    return run


def command(purpose: Any = "task", exit_code: int | None = 7, **more: Any) -> ForkCommand:
    told: Any = {
        "exec_id": f"{purpose}_att-1",
        "attempt_id": "att-1",
        "purpose": purpose,
        "state": "ended",
        "command": {**COMMAND, "timeout_seconds": 60.0},
        "path": None,
        "exit_code": exit_code,
        "signal": None,
        "timed_out": False,
        "seconds": 1.5,
        "truncated": False,
        **more,
    }
    return told  # type: ignore[no-any-return]


def page(**more: Any) -> ForkPage:
    told: Any = {
        **shapes.fork(0, "ended"),
        "outcome": "failed",
        "reason": "command_failed",
        "reward": 0.0,
        "reward_valid": True,
        "exit_code": 7,
        "signal": None,
        "stdout_tail": "",
        "stderr_tail": "AssertionError: 1 != 2\n",
        "truncated": False,
        "seconds": 1.5,
        "cost_usd": 0.002,
        "key": "prompt-1",
        "checks": [],
        "env": {"SEED": "1"},
        "egress": ["policy.internal:8000"],
        "machines": [
            {
                "attempt_id": "att-1",
                "attempt": 1,
                "host": "h-1",
                "opened_at": shapes.INSTANT,
                "ready_at": shapes.INSTANT,
                "ended_at": shapes.INSTANT,
                "lease_seconds": 90.0,
                "lease_left_seconds": None,
                "cost_usd": 0.002,
                "failure": None,
            }
        ],
        "commands": [command()],
        **more,
    }
    return told  # type: ignore[no-any-return]


def kept() -> dict[str, Any]:
    return {"outcome": "failed", "reason": "command_failed", "until": shapes.INSTANT}


def output(text: str, state: str = "ended", then: int | str | None = None) -> httpx2.Response:
    headers = {
        "Promigence-Exec-Id": "x-1",
        "Promigence-Purpose": "task",
        "Promigence-State": state,
        "Promigence-Truncated": "false",
        "Promigence-Next": str(len(text.encode()) if then is None else then),
    }
    return httpx2.Response(200, content=text.encode(), headers=headers)


def test_output_is_text_with_what_it_is_of(client: Promigence, wire: Wire) -> None:
    wire.will(output("why\n"))
    told = client.forks.logs("f-0", "task", "stderr")
    assert wire.lines == ["GET /v1/forks/f-0/logs?exec_id=task&stream=stderr&start=0"]
    assert (told["text"], told["bytes"], told["next"]) == ("why\n", 4, 4)
    assert (told["exec_id"], told["state"], told["truncated"]) == ("x-1", "ended", False)


def test_output_goes_into_a_file_byte_by_byte(
    client: Promigence, wire: Wire, tmp_path: Path
) -> None:
    answer = output("")
    wire.will(httpx2.Response(200, content=b"\xff\x00", headers=answer.headers))
    told = client.forks.logs("f-0", local=tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"\xff\x00"
    assert (told["text"], told["bytes"]) == (None, 2)


def test_a_running_command_is_followed_to_its_end(
    client: Promigence, wire: Wire, time: FakeTime
) -> None:
    wire.will(
        output("", "queued"),
        output("one\n", "running", 4),
        output("", "running", 4),
        output("two\n", "ended", 8),
    )
    heard: list[str] = []
    told = client.forks.logs("f-0", on_text=heard.append)
    assert heard == ["one\n", "two\n"]
    assert wire.lines[0].endswith("?stream=stdout&start=0")
    assert [line.partition("start=")[2] for line in wire.lines] == ["0", "0", "4", "4"]
    assert all("exec_id=x-1" in line for line in wire.lines[1:])
    assert len(time.pauses) == 2  # not after a part that brought something
    assert (told["state"], told["bytes"], told["text"]) == ("ended", 8, "")


def test_what_does_not_go_together_is_said(client: Promigence, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="on_text"):
        client.forks.logs("f-0", on_text=print, local=tmp_path / "out")


def test_an_answer_without_its_headers_is_not_taken(client: Promigence, wire: Wire) -> None:
    wire.will(httpx2.Response(200, content=b"hello"), output("x", then="soon"))
    for _ in range(2):
        with pytest.raises(BadAnswer):
            client.forks.logs("f-0")


def test_a_fork_like_it_is_started_on_what_it_was_given(client: Promigence, wire: Wire) -> None:
    wire.will(
        ok(page(fork_id="f-9")),
        ok(shapes.quote(1)),
        ok(shapes.started(), 201),
        ok({"forks": [shapes.fork(0, "restoring")], "next_cursor": None}),
        ok({"forks": [shapes.fork(0, "ready")], "next_cursor": None}),
    )
    told = client.forks.reproduce("f-9", hold_seconds=600)
    terms = {
        "groups": [
            {"snapshot": "task-suite@1", "count": 1, "env": {"SEED": "1"}, "key": "prompt-1"}
        ],
        "hold_seconds": 600,
        "verify_each": False,
        "keep_failed": 1,
        "egress": ["policy.internal:8000"],
        "labels": {"reproduces": "f-9"},
    }
    assert wire.body(1) == {**terms, "spend_cap": 1000.0}
    assert wire.body(2) == {**terms, "spend_cap": 0.2}
    assert (told["fork_id"], told["reproduces"], told["snapshot"]) == ("f-0", "f-9", "task-suite@1")
    assert told["original"] == command()


def test_a_cap_that_is_given_needs_no_quote(client: Promigence, wire: Wire) -> None:
    wire.will(
        ok(page()),
        ok(shapes.started(), 201),
        ok({"forks": [shapes.fork(0, "ready")], "next_cursor": None}),
    )
    client.forks.reproduce("f-9", spend_cap=0.05)
    assert wire.body(1)["spend_cap"] == 0.05


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(404, "unknown_snapshot", NotFound), (409, "project_budget_exhausted", Conflict)],
)
def test_what_keeps_a_fork_from_being_reproduced_is_told(
    client: Promigence, wire: Wire, status: int, code: str, kind: type[Exception]
) -> None:
    wire.will(ok(page()), refused(status, code))
    with pytest.raises(kind):
        client.forks.reproduce("f-9")


def test_a_fork_that_never_comes_up_is_no_endless_wait(client: Promigence, wire: Wire) -> None:
    ended = shapes.fork(0, "ended")
    ended |= {"outcome": "env_failed", "failure": shapes.failure()}
    for answer, kind in (
        (ended, EnvironmentFailure),
        ({**shapes.fork(0, "ended"), "outcome": "capped", "reason": "run_exhausted"}, Conflict),
    ):
        wire.will(
            ok(page()), ok(shapes.started(), 201), ok({"forks": [answer], "next_cursor": None})
        )
        with pytest.raises(kind):
            client.forks.reproduce("f-9", spend_cap=1)


def test_a_wait_for_it_has_an_end(client: Promigence, wire: Wire) -> None:
    waits = ok({"forks": [shapes.fork(0, "queued")], "next_cursor": None})
    wire.will(ok(page()), ok(shapes.started(), 201), *[waits] * 5)
    with pytest.raises(WaitTimeout) as late:
        client.forks.reproduce("f-9", spend_cap=1, timeout=5)
    assert late.value.details["run_id"] == "r-1"


def test_the_command_line_says_first_why_it_failed(cli: Cli, wire: Wire) -> None:
    failure = {**shapes.failure(), "evidence": {"console_tail": "Kernel panic \x1b[31m"}}
    wire.will(ok(page(outcome="env_failed", failure=failure)))
    lines = cli("forks", "get", "f-0").stdout.splitlines()
    assert lines[0].startswith("f-0  env_failed")
    assert lines[1].startswith(f"failed in its {failure['phase']}: {failure['kind']}")
    assert any("console_tail: Kernel panic" in line for line in lines)
    assert "\x1b" not in "".join(lines)
    assert any("make test" in line and "exit 7" in line for line in lines)


def test_a_kept_fork_says_until_when_and_how_to_look(cli: Cli, wire: Wire) -> None:
    wire.will(ok(page(state="ready", outcome=None, reason=None, kept=kept())))
    shown = cli("forks", "get", "f-0").stdout
    assert f"kept until {shapes.INSTANT}, then failed" in shown
    assert "promigence forks exec f-0" in shown
    assert "AssertionError: 1 != 2" in shown


@pytest.mark.parametrize(
    ("gone_at", "line"),
    [(None, "its host drains"), (shapes.INSTANT, f"its host is gone at {shapes.INSTANT}")],
)
def test_a_fork_whose_host_leaves_says_so(
    cli: Cli, wire: Wire, gone_at: str | None, line: str
) -> None:
    leaves = {"draining": True, "gone_at": gone_at}
    ready = {"state": "ready", "outcome": None, "reason": None}
    wire.will(ok(page(**ready, **leaves)), ok(page(**ready)))
    assert line in cli("forks", "get", "f-0").stdout
    assert "its host" not in cli("forks", "get", "f-0").stdout


def test_output_comes_out_as_it_is(cli: Cli, wire: Wire) -> None:
    wire.will(output("why\n"), output("so far\n", "running"))
    assert cli("forks", "logs", "f-0", "--stderr").stdout == "why\n"
    result = cli("forks", "logs", "f-0", "--exec", "test")
    assert "--follow" in result.stderr
    assert "exec_id=test" in wire.lines[1]


def test_following_prints_what_comes(cli: Cli, wire: Wire) -> None:
    wire.will(output("one\n", "running", 4), output("two\n", "ended", 8))
    assert cli("forks", "logs", "f-0", "--follow").stdout == "one\ntwo\n"
    assert cli("forks", "logs", "f-0", "--follow", "--json").exit_code == 2


def test_a_console_says_whose_it_is(cli: Cli, wire: Wire) -> None:
    told = {"fork_id": "f-0", "attempt_id": "att-1", "live": False, "text": "panic\n"}
    wire.will(ok(told), ok(told))
    result = cli("forks", "console", "f-0")
    assert (result.stdout, "att-1 has ended" in result.stderr) == ("panic\n", True)
    assert json.loads(cli("forks", "console", "f-0", "--json").stdout) == told


def reproduced(wire: Wire, **more: Any) -> None:
    ready = ok({"forks": [shapes.fork(0, "ready")], "next_cursor": None})
    wire.will(ok(page(**more)), ok(shapes.started(), 201), ready)


def test_how_to_run_it_there_is_printed_without_its_secrets(cli: Cli, wire: Wire) -> None:
    reproduced(wire)
    shown = cli("forks", "reproduce", "f-9", "--spend-cap", "0.1").stdout
    assert "f-0 is ready: task-suite@1 like f-9" in shown
    assert "promigence forks exec f-0 --cwd /w --user dev --env TOKEN=... --timeout 60" in shown
    assert "--sh 'make test'" in shown
    assert "s3cret" not in shown


@pytest.mark.parametrize(
    ("exit_code", "code", "said"), [(7, 0, "the same"), (0, 1, "not the same")]
)
def test_it_is_run_again_and_compared(
    cli: Cli, wire: Wire, exit_code: int, code: int, said: str
) -> None:
    reproduced(wire)
    wire.will(ok(shapes.exec_result(exit_code, stdout="again\n")))
    result = cli("forks", "reproduce", "f-9", "--spend-cap", "0.1", "--run")
    assert (result.exit_code, "again\n" in result.stdout) == (code, True)
    assert f"then: exit 7; now: exit {exit_code}: {said}" in result.stderr
    assert wire.body()["env"] == {"TOKEN": "s3cret"}


def test_where_nothing_was_run_there_is_nothing_to_run_again(cli: Cli, wire: Wire) -> None:
    reproduced(wire, commands=[])
    result = cli("forks", "reproduce", "f-9", "--spend-cap", "0.1", "--run")
    assert (result.exit_code, "none to run again" in result.stderr) == (2, True)


def test_whoever_waits_is_told_that_forks_are_kept(cli: Cli, wire: Wire) -> None:
    waits = {**shapes.run("r-1", pending=2), "progress": shapes.progress(ready=2, kept=2)}
    report = shapes.report(shapes.fork_report(0, "pending"), shapes.fork_report(1, "failed", 0.0))
    report["forks"][0]["kept"] = kept()  # type: ignore[typeddict-item]
    wire.will(ok(waits), ok({**waits, "final": True}), ok(report))
    result = cli("runs", "wait", "r-1")
    assert "2 forks are kept until their lease ends" in result.stderr
    assert "1 fork is kept" in result.stdout
    wire.will(ok({"forks": [{**shapes.fork(0), "kept": kept()}], "next_cursor": None}))
    assert "kept: failed" in cli("runs", "forks", "r-1").stdout


def test_how_many_are_kept_is_an_option_of_a_step(cli: Cli, wire: Wire) -> None:
    wire.will(ok(shapes.quote()))
    cli("runs", "quote", "a", "--count", "2", "--spend-cap", "1", "--keep-failed", "2")
    assert wire.body()["keep_failed"] == 2
