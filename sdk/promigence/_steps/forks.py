"""The steps of held forks: commands, files, the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from promigence._protocol import (
    MAX_WAIT_SECONDS,
    MOVE_SECONDS,
    Answer,
    Request,
    expect,
    path_of,
    query_of,
)
from promigence._steps.calls import Steps, Terms, call, call_for, pause_before_next, poll
from promigence.errors import DeadlineExceeded
from promigence.types import Downloaded, ExecResult, ForkPage, HeldExec, Released, Uploaded

RUNNING = 202
DEFAULT_TIMEOUT_SECONDS = 3600.0


def get(fork_id: str, terms: Terms) -> Steps[ForkPage]:
    return call_for(Request("GET", path_of("forks", fork_id)), ForkPage, terms)


def run(fork_id: str, command: HeldExec, exec_id: str, key: str, terms: Terms) -> Steps[ExecResult]:
    """Start a command and follow it to its end.

    Raises EnvironmentFailure; DeadlineExceeded with `exec_id` in its `details`.
    """
    try:
        answer = yield from _to_the_end(fork_id, command, exec_id, key, terms)
    except DeadlineExceeded as late:
        late.details.update(fork_id=fork_id, exec_id=exec_id)
        raise
    return expect(answer, ExecResult)


def upload(fork_id: str, local: Path, guest_path: str, mode: int, terms: Terms) -> Steps[Uploaded]:
    query = query_of(path=guest_path, mode=f"{mode:04o}")
    path = path_of("forks", fork_id, "files")
    request = Request("PUT", path, query, upload=local, wait_seconds=MOVE_SECONDS)
    return call_for(request, Uploaded, terms)


def download(fork_id: str, guest_path: str, local: Path, terms: Terms) -> Steps[Downloaded]:
    query = query_of(path=guest_path)
    path = path_of("forks", fork_id, "files")
    request = Request("GET", path, query, download=local, wait_seconds=MOVE_SECONDS)
    answer = yield from call(request, terms)
    return {"path": str(local), "bytes": answer.length}


def release(
    fork_id: str, passed: bool | None, reward: float | None, key: str, terms: Terms
) -> Steps[Released]:
    body = {"passed": passed, "reward": reward}
    request = Request("POST", path_of("forks", fork_id, "release"), json=body, idempotency_key=key)
    return call_for(request, Released, terms)


def _to_the_end(
    fork_id: str, command: HeldExec, exec_id: str, key: str, terms: Terms
) -> Steps[Answer]:
    clock = terms.deadline.clock
    body: dict[str, Any] = {**command, "exec_id": exec_id}
    first = Request(
        "POST",
        path_of("forks", fork_id, "execs"),
        json=body,
        idempotency_key=key,
        wait_seconds=MAX_WAIT_SECONDS,
    )
    begun = clock()
    answer = yield from call(first, terms)
    again = Request("GET", path_of("forks", fork_id, "execs", exec_id))
    while answer.status == RUNNING:
        after = pause_before_next(begun, MAX_WAIT_SECONDS, clock)
        begun = clock() + after
        answer = yield from poll(again, MAX_WAIT_SECONDS, terms, after)
    return answer
