"""The steps of looking into one fork: its output, its console, and a fork like it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast

from promigence._protocol import (
    MOVE_SECONDS,
    Answer,
    Request,
    expect_list,
    path_of,
    query_of,
)
from promigence._steps import forks, runs
from promigence._steps.calls import Steps, Terms, call, call_for
from promigence.errors import (
    BadAnswer,
    Conflict,
    DeadlineExceeded,
    EnvironmentFailure,
    WaitTimeout,
)
from promigence.types import (
    Console,
    Fork,
    ForkCommand,
    ForkPage,
    Group,
    Logs,
    Reproduction,
    StartTerms,
)

Stream = Literal["stdout", "stderr"]

# How often a running command is asked for more of its output, and a new fork for its state.
FOLLOW_SECONDS = 1.0
# A cap that no hold of one fork comes near: what the quote for it names as the worst case becomes the cap.
ASKED_CAP_USD = 1000.0
# The command that a fork is about, where it ran several.
ABOUT = ("task", "held", "test", "grade")


def logs(
    fork_id: str,
    exec_id: str | None,
    stream: Stream,
    start: int,
    local: Path | None,
    terms: Terms,
    after: float = 0.0,
) -> Steps[Logs]:
    query = query_of(exec_id=exec_id, stream=stream, start=start)
    path = path_of("forks", fork_id, "logs")
    request = Request("GET", path, query, download=local, wait_seconds=MOVE_SECONDS)
    answer = yield from call(request, terms, after)
    return _logs(fork_id, stream, answer, local)


def follow(
    fork_id: str,
    exec_id: str | None,
    stream: Stream,
    on_text: Callable[[str], None],
    terms: Terms,
) -> Steps[Logs]:
    """Ask for more until the command has ended; what came last, with `text` empty: all of it was told."""
    start, after = 0, 0.0
    while True:
        seen = yield from logs(fork_id, exec_id, stream, start, None, terms, after)
        if seen["text"]:
            on_text(seen["text"])
        if seen["state"] not in ("queued", "running"):
            return {**seen, "text": "", "bytes": seen["next"]}
        # The same command, whatever is started meanwhile.
        exec_id, start = seen["exec_id"], seen["next"]
        after = 0.0 if seen["bytes"] else FOLLOW_SECONDS


def console(fork_id: str, terms: Terms) -> Steps[Console]:
    return call_for(Request("GET", path_of("forks", fork_id, "console")), Console, terms)


def reproduce(
    fork_id: str, hold_seconds: float, spend_cap: float | None, keys: tuple[str, str], terms: Terms
) -> Steps[Reproduction]:
    """Start a held fork like another one and wait until it is ready. Raises WaitTimeout; the run goes on."""
    page = yield from forks.get(fork_id, terms)
    group, given = _group_of(page), _terms_of(page, hold_seconds)
    if spend_cap is None:
        asked: StartTerms = {**given, "spend_cap": ASKED_CAP_USD}
        quoted = yield from runs.quote([group], asked, keys[0], terms)
        spend_cap = quoted["worst_case_usd"]
    started = yield from runs.start([group], {**given, "spend_cap": spend_cap}, keys[1], terms)
    fork = yield from _ready(started["run_id"], terms)
    return {
        "fork_id": fork["fork_id"],
        "run_id": started["run_id"],
        "reproduces": fork_id,
        "snapshot": page["snapshot"],
        "quote": started["quote"],
        "original": about(page),
    }


def about(page: ForkPage) -> ForkCommand | None:
    """The command that a fork is about: its task, or the last that it was sent."""
    ran = [one for one in page["commands"] if one["command"] is not None]
    for purpose in ABOUT:
        found = [one for one in ran if one["purpose"] == purpose]
        if found:
            return found[-1]
    return None


def _group_of(page: ForkPage) -> Group:
    group: Group = {"snapshot": page["snapshot"], "count": 1, "env": page["env"]}
    if page["key"] is not None:
        group["key"] = page["key"]
    return group


def _terms_of(page: ForkPage, hold_seconds: float) -> StartTerms:
    """Its own test is not run first: a machine is wanted, also where the test does not pass."""
    return {
        "hold_seconds": hold_seconds,
        "verify_each": False,
        "keep_failed": 1,
        "egress": page["egress"],
        "labels": {"reproduces": page["fork_id"]},
    }


def _ready(run_id: str, terms: Terms) -> Steps[Fork]:
    request = Request("GET", path_of("runs", run_id, "forks"))
    after = 0.0
    while True:
        try:
            answer = yield from call(request, terms, after)
        except DeadlineExceeded as late:
            raise WaitTimeout(
                f"run {run_id} has no machine yet and goes on; see `promigence runs forks {run_id}`",
                details={"run_id": run_id},
            ) from late
        fork = _only(answer)
        if fork["state"] == "ready":
            return fork
        if fork["state"] == "ended":
            raise _ended(fork)
        after = FOLLOW_SECONDS


def _only(answer: Answer) -> Fork:
    found, _ = expect_list(answer, "forks", Fork)
    if len(found) != 1:
        raise BadAnswer(f"the run has {len(found)} forks, not one", request_id=answer.request_id)
    return found[0]


def _ended(fork: Fork) -> Conflict:
    if fork["failure"] is not None:
        why = fork["failure"]["message"]
        return EnvironmentFailure(
            f"fork {fork['fork_id']} did not become ready: {why}",
            failure=fork["failure"],
            fork_id=fork["fork_id"],
        )
    return Conflict(
        f"fork {fork['fork_id']} ended before it was ready: {fork['reason']}",
        code="fork_ended",
        details={"run_id": fork["run_id"], "fork_id": fork["fork_id"]},
    )


def _logs(fork_id: str, stream: Stream, answer: Answer, local: Path | None) -> Logs:
    told = {
        name: answer.headers.get(f"promigence-{name}")
        for name in ("exec-id", "purpose", "state", "next")
    }
    missing = [name for name, value in told.items() if value is None]
    if missing or not str(told["next"]).isdecimal():
        raise BadAnswer(
            f"the answer is not Promigence's: output without {', '.join(missing) or 'a place'}",
            status=answer.status,
            request_id=answer.request_id,
        )
    read: dict[str, object] = {
        "fork_id": fork_id,
        "exec_id": told["exec-id"],
        "purpose": told["purpose"],
        "stream": stream,
        "state": told["state"],
        "truncated": answer.headers.get("promigence-truncated") == "true",
        "bytes": answer.length,
        "next": int(str(told["next"])),
        "text": None if local is not None else answer.body.decode("utf-8", "replace"),
    }
    return cast("Logs", read)
