"""What is kept of a command's end, and a held command's end told; shared by `exec`, `collect` and `recover`."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace

from app.domain.machine import OUTPUT_LIMIT_BYTES, CommandEnd
from app.domain.measure import Step
from app.domain.run import Blob, Claimed, Exec, ExecPurpose, ExecResult, ExecSpec
from app.errors import EnvironmentFault, FailureKind, Unavailable
from app.flow._claimed import own_exec_id, start_intended
from app.ports import HostPorts, Ports

# What a row keeps of each stream, head and tail. Where more was printed, all that the guest kept is in a blob.
HELD_ROW_BYTES = 1024 * 1024
# Of a run's own commands: most print less, so that most of a thousand ends write no blob.
OWN_ROW_BYTES = 64 * 1024
# A run's own commands whose saved results stand, whatever becomes of their machine.
DECIDING = (ExecPurpose.GRADE, ExecPurpose.TASK)


def is_decided(ports: Ports, name: str) -> bool:
    """Whether a command's saved result decides what becomes of its fork, whatever became of its machine."""
    decide = (ports.execs.find(own_exec_id(purpose, name)) for purpose in DECIDING)
    return any(each is not None and each.result is not None for each in decide)


def settle_held(ports: Ports, claimed: Claimed, asked: Exec, end: CommandEnd) -> None:
    """Store the result, then wake who waits for it. Twice is safe."""
    ended = replace(asked, result=exec_result(ports, end, HELD_ROW_BYTES))
    if ports.execs.finish(claimed, ended):
        ports.measures.took(Step.EXEC, end.duration_ns)
        ports.bells.woken(asked.exec_id)


def start_unseen(
    ports: Ports, host: HostPorts, claimed: Claimed, asked: Exec, spec: ExecSpec
) -> None:
    """Start what was intended and never reached the guest. Raises EnvironmentFault, but where it refuses a held one."""
    try:
        start_intended(ports, host, claimed, asked.exec_id, spec)
    except EnvironmentFault as fault:
        if fault.kind is not FailureKind.EXEC_NOT_STARTED or asked.purpose is not ExecPurpose.HELD:
            raise
        refuse_held(ports, claimed, asked, fault)


def refuse_held(ports: Ports, claimed: Claimed, asked: Exec, fault: EnvironmentFault) -> None:
    """The guest lives and refused the command (no such cwd or user): the caller's to mend, the fork is as it was."""
    refused = ExecResult(error=("bad_request", fault.message))
    ports.execs.finish(claimed, replace(asked, result=refused))
    ports.bells.woken(asked.exec_id)


def note_end(ports: Ports, claimed: Claimed, asked: Exec, end: CommandEnd) -> None:
    """Keep what a command left behind whose end is an environment's fault: its fork ends, or goes on, without it."""
    ports.execs.note(claimed, replace(asked, result=exec_result(ports, end)))
    ports.measures.took(Step.EXEC, end.duration_ns)


def exec_result(ports: Ports, end: CommandEnd, row_bytes: int = OWN_ROW_BYTES) -> ExecResult:
    """A command's end as it is read later. A time limit is a result: `timed_out`, no exit code, output kept.

    Blobs are written first: no row names what is not there.
    """
    stdout, stderr = _text(end.stdout, row_bytes), _text(end.stderr, row_bytes)
    blobs, lost = _blobs(ports, (end.stdout, stdout), (end.stderr, stderr))
    return ExecResult(
        exit_code=None if end.timed_out else end.exit_code,
        signal=end.signal,
        timed_out=end.timed_out,
        stdout=stdout,
        stderr=stderr,
        truncated=end.truncated or max(len(end.stdout), len(end.stderr)) > row_bytes,
        duration_ns=end.duration_ns,
        cut=end.truncated or lost,
        stdout_blob=blobs[0],
        stderr_blob=blobs[1],
    )


def _blobs(ports: Ports, *streams: tuple[bytes, str]) -> tuple[list[Blob | None], bool]:
    """A blob for each stream that its text does not say to the byte; and whether one could not be kept.

    A result counts for more than its output: it is saved also while there is no room for blobs.
    """
    try:
        return [None if text.encode() == raw else _blob(ports, raw) for raw, text in streams], False
    except Unavailable:
        return [None for _ in streams], True


def _blob(ports: Ports, raw: bytes) -> Blob:
    """What a thousand forks print alike is written once."""
    sha256 = hashlib.sha256(raw).hexdigest()
    if not ports.blobs.has(sha256):
        ports.blobs.put(io.BytesIO(raw), expect=sha256, limit_bytes=OUTPUT_LIMIT_BYTES)
    return Blob(sha256, len(raw))


def _text(output: bytes, row_bytes: int) -> str:
    if len(output) > row_bytes:
        half = row_bytes // 2
        output = output[:half] + output[-half:]
    # A row cannot hold NUL in PostgreSQL's text.
    return output.decode("utf-8", "replace").replace("\0", "\ufffd")
