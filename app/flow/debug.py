"""Look into one fork: what its commands printed, while they run and afterwards, and its machine's console."""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Literal

from app.domain.run import Blob, Exec, ExecPurpose, ExecResult, ExecState, Look
from app.errors import Conflict, NotFound, NotYet
from app.ids import new_id
from app.ports import Ports

Stream = Literal["stdout", "stderr"]

# Where no command is named: the one, of those that ran, that a fork is about.
ABOUT = (ExecPurpose.TASK, ExecPurpose.HELD, ExecPurpose.TEST, ExecPurpose.GRADE)
NEWEST = 200


@dataclass(frozen=True, slots=True)
class Output:
    """All that is kept of a stream, from a byte on: an open source of so many bytes, which the caller closes."""

    source: BinaryIO
    size_bytes: int


def command(ports: Ports, project_id: str, fork_id: str, names: Iterable[str]) -> Exec:
    """A command of a fork by any of these names (`task`, `test`, `grade`: the newest); by none, the one it is about.

    Raises NotFound(unknown_fork, unknown_exec, no_commands).
    """
    fork_id = ports.runs.fork(project_id, fork_id).fork_id
    asked = tuple(names)
    for name in asked:
        with suppress(NotFound):
            return ports.execs.get(project_id, fork_id, name)
    ran = [row for row in ports.execs.of_fork(fork_id, NEWEST) if row.spec is not None]
    for purpose in ABOUT if not asked else [each for each in ABOUT if each.value in asked]:
        found = [row for row in ran if row.purpose is purpose]
        if found:
            return ports.execs.get(project_id, fork_id, found[-1].exec_id)
    if asked:
        raise NotFound("unknown_exec", f"fork {fork_id} has no command {asked[0]}")
    raise NotFound("no_commands", f"no command has been started in fork {fork_id}")


def output(ports: Ports, asked: Exec, stream: Stream, start: int) -> Output:
    """What is kept of the output of a command that has ended.

    Raises NotYet(output_not_ready), Conflict(output_lost), NotFound(unknown_file) when it was deleted.
    """
    if asked.result is None:
        raise _nothing(asked)
    blob, text = _kept(asked.result, stream)
    if blob is None:
        data = text.encode()[start:]
        return Output(io.BytesIO(data), len(data))
    source = ports.blobs.open(blob.sha256)
    source.seek(start)
    return Output(source, max(0, blob.size_bytes - start))


def look_at_output(ports: Ports, asked: Exec, stream: Stream, start: int) -> Exec:
    """Ask a command's host for what it has printed so far: the look's row, whose result is there later.

    Raises Conflict(fork_ended, environment_failure), NotYet(fork_not_ready, too_many_execs).
    """
    look = Look(asked.exec_id, stream, start)
    return _look(ports, asked.project_id, asked.fork_id, ExecPurpose.OUTPUT, look)


def look_at_console(ports: Ports, project_id: str, fork_id: str) -> Exec:
    """Ask a machine's host for its console's tail. Raises as `look_at_output`, and NotFound."""
    return _look(ports, project_id, fork_id, ExecPurpose.CONSOLE, None)


def kept_console(ports: Ports, project_id: str, fork_id: str) -> tuple[str, str]:
    """The last machine that ended and its console's tail. Raises NotFound(unknown_fork, no_console)."""
    fork = ports.runs.fork(project_id, fork_id)
    found = ports.runs.console(fork.fork_id)
    if found is None:
        raise NotFound("no_console", f"no machine of fork {fork_id} has ended")
    return found


def _look(
    ports: Ports, project_id: str, fork_id: str, purpose: ExecPurpose, look: Look | None
) -> Exec:
    asked = Exec(
        exec_id=new_id("look"),
        fork_id=fork_id,
        attempt_id="",  # the store knows the fork's present machine
        project_id=project_id,
        purpose=purpose,
        spec=None,
        look=look,
    )
    row, claim = ports.execs.request(asked)
    ports.bells.exec(claim, row.exec_id)
    return row


def _kept(result: ExecResult, stream: Stream) -> tuple[Blob | None, str]:
    if stream == "stderr":
        return result.stderr_blob, result.stderr
    return result.stdout_blob, result.stdout


def _nothing(asked: Exec) -> Conflict | NotYet:
    if asked.state is not ExecState.LOST:
        return NotYet("output_not_ready", f"{asked.exec_id} is just ending; ask again")
    why = "" if asked.failure is None else f": {asked.failure.message}"
    return Conflict(
        "output_lost",
        f"what {asked.exec_id} printed went with its machine{why}",
        fork_id=asked.fork_id,
        failure=None if asked.failure is None else asked.failure.as_dict(),
    )
