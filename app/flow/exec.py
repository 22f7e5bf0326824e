"""Do what a fork was sent: a command, a file in either direction, a look at what it has printed."""

from __future__ import annotations

import codecs
import tempfile
from dataclasses import replace

from app.domain.failure import Phase
from app.domain.run import (
    LOOKS,
    Claimed,
    Exec,
    ExecPurpose,
    ExecResult,
    ExecState,
    FileMove,
    Look,
)
from app.errors import (
    BadRequest,
    Conflict,
    EnvironmentFault,
    FailureKind,
    NotFound,
    TooLarge,
    Unavailable,
)
from app.flow._broken import CHANNEL_FAULTS, answers, over_channel
from app.flow._claimed import begin, failing, late_results_dropped, patiently
from app.flow._results import refuse_held, settle_held
from app.ports import HostPorts, Ports

DOWNLOAD_LIMIT_BYTES = 2 * 1024**3
# A command that ends at once is collected here, without another trip through the queue.
SHORT_COMMAND_S = 0.25
# The most that one look at a running command's output brings; the next goes on behind it.
LOOK_BYTES = 1024 * 1024


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
    if asked.purpose in LOOKS:
        with late_results_dropped():
            _look(ports, host, claimed, asked)
        return True
    with late_results_dropped(), failing(ports, host, claimed, Phase.EXEC):
        try:
            return _act(ports, host, claimed, asked)
        except Conflict as conflict:
            # The fork is being stopped: its closing tells the caller so.
            if conflict.code != "stop_asked":
                raise
    return False


def _look(ports: Ports, host: HostPorts, claimed: Claimed, asked: Exec) -> None:
    """Answer what is asked of a machine: nothing is started in it, and nothing that is met here ends its fork."""
    name, look = claimed.attempt.attempt_id, asked.look
    try:
        if look is None:
            seen = ExecResult(exit_code=0, stdout=host.machines.console_tail(name))
        else:
            seen = _output_so_far(host, name, look)
    except EnvironmentFault as fault:
        seen = ExecResult(error=("unavailable", fault.message))
    ports.execs.finish(claimed, replace(asked, result=seen))
    ports.bells.woken(asked.exec_id)


def _output_so_far(host: HostPorts, name: str, look: Look) -> ExecResult:
    """What there is now, cut before a character that is not whole yet; nothing where the guest cannot show it."""
    try:
        part = host.guest.output(name, look.exec_id, look.stream, look.start, LOOK_BYTES)
    except NotFound:
        part = b""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(part)
    read = len(part) - len(decoder.getstate()[0])
    return ExecResult(exit_code=0, stdout=text.replace("\0", "\ufffd"), read_to=look.start + read)


def _act(ports: Ports, host: HostPorts, claimed: Claimed, asked: Exec) -> bool:
    if asked.file is not None:
        return _move(ports, host, claimed, asked, asked.file)
    try:
        if not begin(ports, host, claimed, asked):
            return False
    except EnvironmentFault as fault:
        if fault.kind is not FailureKind.EXEC_NOT_STARTED:
            raise
        refuse_held(ports, claimed, asked, fault)
        return True
    name = claimed.attempt.attempt_id
    end = over_channel(
        host, name, lambda: host.guest.end(name, asked.exec_id, wait_s=SHORT_COMMAND_S)
    )
    if end is None:
        return False
    settle_held(ports, claimed, asked, end)
    return True


def _move(ports: Ports, host: HostPorts, claimed: Claimed, asked: Exec, file: FileMove) -> bool:
    """Once its intent is committed nobody else comes to it: however it ends is said, or its caller waits for ever."""
    if ports.execs.intend(claimed, asked) is None:
        return False
    try:
        moved = _MOVES[asked.purpose](ports, host, claimed, file)
    except (BadRequest, NotFound, TooLarge) as refused:
        ended = replace(asked, result=ExecResult(error=(refused.code, refused.message)))
    except Unavailable as away:
        ended = replace(asked, result=ExecResult(error=("unavailable", away.message)))
    except EnvironmentFault as fault:
        if fault.kind not in CHANNEL_FAULTS or not answers(host, claimed.attempt.attempt_id):
            raise
        # The machine is well: only what the file went over broke, and a file may be moved again.
        ended = replace(asked, result=ExecResult(error=("unavailable", fault.message)))
    else:
        ended = replace(asked, result=ExecResult(exit_code=0), file=moved)
    patiently(ports, lambda: ports.execs.finish(claimed, ended))
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
