"""What a trainer does with a fork that is held, or kept: send commands and files, and hand it back."""

from __future__ import annotations

from math import isfinite

from app.domain.audit import Entry
from app.domain.fork import EndReason
from app.domain.run import Exec, ExecPurpose, ExecSpec, ExecState, FileMove
from app.errors import BadRequest
from app.ids import new_id
from app.ports import Ports

RELEASES = {
    True: EndReason.RELEASED_PASSED,
    False: EndReason.RELEASED_FAILED,
    None: EndReason.RELEASED,
}


def exec(  # noqa: A001 - the word of the contract
    ports: Ports,
    project_id: str,
    fork_id: str,
    spec: ExecSpec,
    exec_id: str | None,
    name: str | None = None,
    entry: Entry | None = None,
) -> Exec:
    """Send a command; its result is in the row later. The same id and command again is the same row.

    `name` is what its caller calls it, where the row has another id; `entry` goes into the audit log with a new row.

    Raises Conflict(exec_id_taken, fork_not_held, fork_ended, environment_failure), NotYet(fork_not_ready,
    too_many_execs), NotFound.
    """
    return _request(
        ports, project_id, fork_id, ExecPurpose.HELD, exec_id, spec=spec, name=name, entry=entry
    )


def upload(
    ports: Ports, project_id: str, fork_id: str, guest_path: str, sha256: str, mode: int
) -> Exec:
    """Write bytes that are in the blobs to a file of the guest. Raises like `exec`."""
    file = FileMove(guest_path, sha256=sha256, mode=mode)
    return _request(ports, project_id, fork_id, ExecPurpose.UPLOAD, None, file=file)


def download(ports: Ports, project_id: str, fork_id: str, guest_path: str) -> Exec:
    """Read a file of the guest into the blobs. Raises like `exec`."""
    file = FileMove(guest_path)
    return _request(ports, project_id, fork_id, ExecPurpose.DOWNLOAD, None, file=file)


def release(
    ports: Ports, project_id: str, fork_id: str, passed: bool | None, reward: float | None
) -> None:
    """Hand a fork back with a grade, or none. The same grade again changes nothing. A kept fork takes none.

    Raises BadRequest(bad_reward), Conflict(already_released, fork_not_held, fork_ended, verdict_stands), NotFound.
    """
    if reward is not None and not isfinite(reward):
        raise BadRequest("bad_reward", "a reward is a finite number")
    attempt = ports.runs.release(project_id, fork_id, RELEASES[passed], reward)
    if attempt is not None:
        ports.bells.stop(attempt.claim, attempt.attempt_id)


def _request(
    ports: Ports,
    project_id: str,
    fork_id: str,
    purpose: ExecPurpose,
    exec_id: str | None,
    *,
    spec: ExecSpec | None = None,
    file: FileMove | None = None,
    name: str | None = None,
    entry: Entry | None = None,
) -> Exec:
    asked = Exec(
        exec_id=exec_id or new_id("exec"),
        fork_id=fork_id,
        attempt_id="",  # the store knows the fork's present machine
        project_id=project_id,
        purpose=purpose,
        spec=spec,
        file=file,
        name=name,
    )
    row, claim = ports.execs.request(asked, entry)
    if row.state is ExecState.QUEUED:
        ports.bells.exec(claim, row.exec_id)
    return row
