"""One fork as a person reads it: why it failed comes first."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from promigence.cli.session import moment, plain, table, usd
from promigence.cli.shown import draining
from promigence.types import ExecResult, ForkCommand, ForkPage, HeldExec, Reproduction

MOST_COMMANDS = 20
COMMAND_COLUMNS = 160


def page(told: ForkPage) -> list[RenderableType]:
    """What became of it and why, then what it was given, its machines, its commands."""
    return [_head(told), *_why(told), *_given(told), *_machines(told), *_commands(told)]


def reproduction(told: Reproduction) -> list[RenderableType]:
    """The new fork, and how to run in it what the other ran."""
    fork_id, original = told["fork_id"], told["original"]
    shown: list[RenderableType] = [
        Text.assemble(
            (fork_id, "bold"), f" is ready: {told['snapshot']} like {told['reproduces']}"
        ),
        Text(f"at most {usd(told['quote']['max_cost_usd'])}; run {told['run_id']}"),
    ]
    if original is not None and original["command"] is not None:
        command = original["command"]
        shown += [
            plain(f"it ran ({original['purpose']}, {end_of(original)}): {command_line(command)}"),
            *([plain(f"  {line}") for line in _terms(command)]),
            plain(f"run it: promigence forks exec {fork_id} {_as_options(command)}"),
        ]
    shown.append(Text(f"end it: promigence forks release {fork_id}"))
    return shown


def command_line(command: HeldExec) -> str:
    """A command as one may type it, cut where it is very long."""
    text = command["sh"] if "sh" in command else shlex.join(command["argv"])
    return text if len(text) <= COMMAND_COLUMNS else f"{text[:COMMAND_COLUMNS]}..."


def end_of(command: ForkCommand | ExecResult) -> str:
    """How a command ended, in two words."""
    if command["timed_out"]:
        return "timed out"
    if command["signal"] is not None:
        return f"signal {command['signal']}"
    return "no end" if command["exit_code"] is None else f"exit {command['exit_code']}"


def same_end(then: ForkCommand, now: ExecResult) -> bool:
    """Whether a command ended as it did before; what it printed may differ, and the seconds will."""
    names = ("exit_code", "signal", "timed_out")
    return all(then[name] == now[name] for name in names)  # type: ignore[literal-required]


def _head(told: ForkPage) -> Text:
    kept = told["kept"]
    state: str = told["outcome"] or told["state"]
    if kept is not None:
        state = f"kept until {moment(kept['until'])}, then {kept['outcome']}"
    reason = f" ({told['reason'] or (kept and kept['reason'])})" if told["reason"] or kept else ""
    reward = "" if told["reward"] is None else f", reward {told['reward']}"
    return Text.assemble((told["fork_id"], "bold"), f"  {state}{reason}{reward}", _leaving(told))


def _leaving(told: ForkPage) -> tuple[str, str]:
    line = draining(told)
    return (f"  {line}" if line else "", "yellow")


def _why(told: ForkPage) -> Iterator[RenderableType]:
    failure = told["failure"]
    if failure is not None:
        yield plain(f"failed in its {failure['phase']}: {failure['kind']}: {failure['message']}")
        if failure["task_may_have_caused"]:
            yield Text("a command had started: the task may have caused it", style="yellow")
        for name, seen in failure["evidence"].items():
            if seen in (None, "", [], {}):
                continue
            yield plain(f"  {name}: {str(seen).strip()[-600:]}")
    elif told["exit_code"] is not None:
        yield plain(
            f"its command ended with exit {told['exit_code']} after {told['seconds']:.1f} s"
        )
    tail = told["stderr_tail"].strip() or told["stdout_tail"].strip()
    if tail and told["outcome"] != "passed":
        yield plain("\n".join(f"  | {line}" for line in tail.splitlines()[-12:]))
    if told["kept"] is not None:
        yield plain(f"look into it: promigence forks exec {told['fork_id']} --sh ...")


def _given(told: ForkPage) -> Iterator[RenderableType]:
    env = " ".join(sorted(told["env"])) or "none"
    yield plain(
        f"{told['snapshot']}, run {told['run_id']}, index {told['index']}, key {told['key'] or '-'}; "
        f"env {env}; egress {', '.join(told['egress']) or 'none'}; cost {usd(told['cost_usd'])}"
    )


def _machines(told: ForkPage) -> Iterator[RenderableType]:
    rows = [
        (
            one["attempt"],
            one["attempt_id"],
            one["host"],
            moment(one["opened_at"]),
            one["ready_at"] and moment(one["ready_at"]),
            one["ended_at"] and moment(one["ended_at"]),
            one["lease_left_seconds"],
            usd(one["cost_usd"]),
            one["failure"] and one["failure"]["kind"],
        )
        for one in told["machines"]
    ]
    heads = ("#", "machine", "host", "opened", "ready", "ended", "lease left", "cost", "failure")
    yield table(*heads, rows=rows)


def _commands(told: ForkPage) -> Iterator[RenderableType]:
    rows = [
        (
            one["exec_id"],
            one["purpose"],
            one["state"],
            end_of(one) if one["state"] == "ended" else None,
            one["seconds"],
            one["path"] if one["command"] is None else command_line(one["command"]),
        )
        for one in told["commands"]
    ]
    heads = ("command", "for", "state", "end", "seconds", "what")
    yield table(*heads, rows=rows[-MOST_COMMANDS:], prose="what")
    if len(rows) > MOST_COMMANDS:
        yield Text(f"and {len(rows) - MOST_COMMANDS} before them (--json has more)", style="dim")


def _terms(command: HeldExec) -> Iterator[str]:
    yield f"cwd {command.get('cwd', '/')}, user {command.get('user', 'root')}"
    if command.get("env"):
        yield f"env {' '.join(sorted(command['env']))}"


def _as_options(command: HeldExec) -> str:
    """The options of `forks exec` that run it; the values of its env are its caller's, and are not printed."""
    options = [("--cwd", command.get("cwd")), ("--user", command.get("user"))]
    told = [f"{name} {shlex.quote(value)}" for name, value in options if value is not None]
    told += [f"--env {shlex.quote(name)}=..." for name in sorted(command.get("env", {}))]
    told.append(f"--timeout {command.get('timeout_seconds', 3600.0):g}")
    if "sh" in command:
        return " ".join([*told, f"--sh {shlex.quote(command['sh'])}"])
    return " ".join([*told, "--", shlex.join(command["argv"])])
