"""A held command's end, stored and told; shared by `exec` (short commands) and `collect` (all others)."""

from __future__ import annotations

from dataclasses import replace

from app.domain.machine import CommandEnd
from app.domain.run import Claimed, Exec, ExecResult
from app.ports import Ports

# What a row keeps of each stream, head and tail; the guest's journal keeps up to the command's own limit.
ROW_OUTPUT_BYTES = 1024 * 1024


def settle_held(ports: Ports, claimed: Claimed, asked: Exec, end: CommandEnd) -> None:
    """Store the result, then wake who waits for it. Twice is safe."""
    ended = replace(asked, result=exec_result(end))
    if ports.execs.finish(claimed, ended):
        ports.bells.woken(asked.exec_id)


def exec_result(end: CommandEnd) -> ExecResult:
    """A command's end as its caller reads it. A time limit is a result: `timed_out`, no exit code, output kept."""
    return ExecResult(
        exit_code=None if end.timed_out else end.exit_code,
        signal=end.signal,
        timed_out=end.timed_out,
        stdout=_text(end.stdout),
        stderr=_text(end.stderr),
        truncated=end.truncated or max(len(end.stdout), len(end.stderr)) > ROW_OUTPUT_BYTES,
        duration_ns=end.duration_ns,
    )


def _text(output: bytes) -> str:
    if len(output) > ROW_OUTPUT_BYTES:
        half = ROW_OUTPUT_BYTES // 2
        output = output[:half] + output[-half:]
    # A row cannot hold NUL in PostgreSQL's text.
    return output.decode("utf-8", "replace").replace("\0", "\ufffd")
