"""Start what a held fork was sent: a command, or a file in either direction."""

from __future__ import annotations

import tempfile
from dataclasses import replace

from app.domain.failure import Phase
from app.domain.run import Claimed, Exec, ExecPurpose, ExecResult, ExecState, FileMove
from app.errors import BadRequest, Conflict, EnvironmentFault, FailureKind, NotFound, TooLarge
from app.flow._claimed import begin, failing, late_results_dropped
from app.flow._results import settle_held
from app.ports import HostPorts, Ports

DOWNLOAD_LIMIT_BYTES = 2 * 1024**3
# A command that ends at once is collected here, without another trip through the queue.
SHORT_COMMAND_S = 0.25


def start(ports: Ports, host: HostPorts, exec_id: str) -> bool:
    """Start a queued command of a held fork, or move its file. Twice is safe: the intent is committed once.

    True when its end is in the rows already, so that there is nothing left to collect.
    """
    asked = ports.execs.find(exec_id)
    if asked is None or asked.state is not ExecState.QUEUED:
        return False
    claimed = ports.attempts.get(asked.attempt_id)
    if claimed is None or claimed.attempt.claim != host.claim:
        return False
    with late_results_dropped(), failing(ports, host, claimed, Phase.EXEC):
        try:
            return _act(ports, host, claimed, asked)
        except Conflict as conflict:
            # The fork is being stopped: its closing tells the caller so.
            if conflict.code != "stop_asked":
                raise
    return False


def _act(ports: Ports, host: HostPorts, claimed: Claimed, asked: Exec) -> bool:
    if asked.file is not None:
        return _move(ports, host, claimed, asked, asked.file)
    try:
        if not begin(ports, host, claimed, asked):
            return False
    except EnvironmentFault as fault:
        if fault.kind is not FailureKind.EXEC_NOT_STARTED:
            raise
        # The guest lives and refused the command (no such cwd or user): the caller's to mend, the fork is as it was.
        refused = ExecResult(error=("bad_request", fault.message))
        ports.execs.finish(claimed, replace(asked, result=refused))
        ports.bells.woken(asked.exec_id)
        return True
    end = host.guest.end(claimed.attempt.attempt_id, asked.exec_id, wait_s=SHORT_COMMAND_S)
    if end is None:
        return False
    settle_held(ports, claimed, asked, end)
    return True


def _move(ports: Ports, host: HostPorts, claimed: Claimed, asked: Exec, file: FileMove) -> bool:
    if ports.execs.intend(claimed, asked) is None:
        return False
    try:
        moved = _MOVES[asked.purpose](ports, host, claimed, file)
    except (BadRequest, NotFound, TooLarge) as refused:
        ended = replace(asked, result=ExecResult(error=(refused.code, refused.message)))
    else:
        ended = replace(asked, result=ExecResult(exit_code=0), file=moved)
    ports.execs.finish(claimed, ended)
    ports.bells.woken(asked.exec_id)
    return True


def _upload(ports: Ports, host: HostPorts, claimed: Claimed, file: FileMove) -> FileMove:
    name = claimed.attempt.attempt_id
    with ports.blobs.open(file.sha256 or "") as source:
        size = host.guest.upload(name, source, file.guest_path, file.mode)
    return replace(file, size_bytes=size)


def _download(ports: Ports, host: HostPorts, claimed: Claimed, file: FileMove) -> FileMove:
    name = claimed.attempt.attempt_id
    with tempfile.TemporaryFile() as sink:
        host.guest.download(name, file.guest_path, sink, DOWNLOAD_LIMIT_BYTES)
        sink.seek(0)
        sha256, size = ports.blobs.put(sink, expect=None, limit_bytes=DOWNLOAD_LIMIT_BYTES)
    return replace(file, sha256=sha256, size_bytes=size)


_MOVES = {ExecPurpose.UPLOAD: _upload, ExecPurpose.DOWNLOAD: _download}
