"""The parent of the stack's processes: starts each, starts it again when it ends by itself, stops all when told to.

A part that pulses is ended when it is frozen, and one that drains gets its successor at once and ends in its own time.

It does nothing else, so that it has little to die of. If it is killed all the same, its processes go on without a
parent; they are written down, and `down` finds them.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from infra.stack import pulse
from infra.stack.parts import Part
from infra.stack.process import Process, find, stop
from infra.stack.records import Places, log_of, write_processes

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
# A part that lived this long is well: its next end is a new trouble, not the old one.
SETTLED_S = 60.0
# A part that pulses and was not heard at so many looks is frozen. Looks, not seconds: while the whole machine slept
# nobody looked either. As long as its claims hold: see `app/domain/worker.py`.
LOOK_S = 2.0
FROZEN_LOOKS = 15

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """A part and how it stands: its process, or the time at which it is started again.

    `ear` is where its pulse is heard; `quiet` counts the looks without one since the last, None before the first. With
    `leaving` it drains, and nothing follows its end.
    """

    part: Part
    child: subprocess.Popen[bytes] | None = None
    process: Process | None = None
    started_s: float = 0.0
    failures: int = 0
    due_s: float = 0.0
    ear: int | None = None
    quiet: int | None = None
    looked_s: float = 0.0
    leaving: bool = False


def supervise(parts: tuple[Part, ...], environment: Mapping[str, str], places: Places) -> None:
    """Keep the parts alive until SIGTERM or SIGINT; then stop all of them, and return."""
    told, ears = _ears()
    kept = {part.name: Kept(part) for part in parts}
    try:
        while not told:
            _start_due(kept, environment, places)
            _wait(ears, kept)
            if _note_ends(kept):
                write_processes(places, _living(kept))
            _listen(kept)
    finally:
        stop_in_order(_living(kept), parts)
        _note_ends(kept)
        ears.close()


def stop_in_order(processes: Mapping[str, Process], parts: tuple[Part, ...]) -> None:
    """Stop the parts, and after them those that they stood on. Twice is safe."""
    for foundation in (False, True):
        named = [part for part in parts if part.foundation is foundation]
        ending = [each for part in named for each in _of(part, processes)]
        patience_s = max((part.patience_s for part in named), default=0.0)
        stubborn = stop(ending, patience_s=patience_s)
        for process in stubborn:
            log.warning("part_killed", pid=process.pid, after_s=patience_s)


def _of(part: Part, processes: Mapping[str, Process]) -> list[Process]:
    """Its process, and those that drain after it."""
    return [each for name, each in processes.items() if name.partition("-")[0] == part.name]


def pause_s(failures: int) -> float:
    """How long a part that ended by itself waits for its next start."""
    return min(FIRST_PAUSE_S * 2.0 ** (failures - 1), LONGEST_PAUSE_S)


def _ears() -> tuple[list[int], socket.socket]:
    """Signals heard while waiting: the numbers that tell us to stop, and the socket that wakes us for each signal."""
    told: list[int] = []
    ears, mouth = socket.socketpair()
    mouth.setblocking(False)
    ears.setblocking(False)
    signal.set_wakeup_fd(mouth.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda heard, _frame: told.append(heard))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return told, ears


def _wait(ears: socket.socket, kept: Mapping[str, Kept]) -> None:
    due = [each.due_s for each in kept.values() if each.child is None]
    timeout_s = max(min(due) - time.monotonic(), 0.0) if due else None
    if any(each.ear is not None for each in kept.values()):
        timeout_s = LOOK_S if timeout_s is None else min(timeout_s, LOOK_S)
    # Pulses are read at each look; they wake nobody.
    if select.select([ears], [], [], timeout_s)[0]:
        ears.recv(4096)


def _start_due(kept: dict[str, Kept], environment: Mapping[str, str], places: Places) -> None:
    now = time.monotonic()
    started = False
    for name, each in kept.items():
        if each.child is None and each.due_s <= now:
            kept[name] = _started(each, environment, places)
            started = True
    if started:
        write_processes(places, _living(kept))


def _living(kept: Mapping[str, Kept]) -> dict[str, Process]:
    return {name: each.process for name, each in kept.items() if each.process is not None}


def _started(each: Kept, environment: Mapping[str, str], places: Places) -> Kept:
    ear, mouth = pulse.pipe() if each.part.pulses else (None, None)
    try:
        child = _spawn(each.part, environment, places, mouth)
    except OSError as error:
        log.warning("part_not_started", part=each.part.name, error=error.strerror)
        return _ended(replace(each, started_s=time.monotonic(), ear=ear), error.errno)
    finally:
        if mouth is not None:
            os.close(mouth)
    log.info("part_started", part=each.part.name, pid=child.pid)
    # Not reaped yet, so the number is still this child's.
    process, now = find(child.pid), time.monotonic()
    return replace(each, child=child, process=process, started_s=now, ear=ear, looked_s=now)


def _spawn(
    part: Part, environment: Mapping[str, str], places: Places, mouth: int | None
) -> subprocess.Popen[bytes]:
    with log_of(places, part.name) as out:
        return subprocess.Popen(
            part.argv if mouth is None else (*part.argv, "--pulse-fd", str(mouth)),
            cwd=places.directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=() if mouth is None else (mouth,),
        )


def _note_ends(kept: dict[str, Kept]) -> bool:
    """Whether one has left for good."""
    before = len(kept)
    for name, each in list(kept.items()):
        if each.child is None or each.child.poll() is None:
            continue
        if each.leaving:
            log.info("part_left", part=name, code=each.child.returncode)
            _close_ear(each)
            del kept[name]
        else:
            kept[name] = _ended(each, each.child.returncode)
    return len(kept) < before


def _listen(kept: dict[str, Kept]) -> None:
    """Look at the pulses: end who is frozen, and make room for the successor of who drains."""
    for name, each in list(kept.items()):
        if each.ear is None or each.process is None:
            continue
        said = pulse.heard(each.ear)
        now = kept[name] = looked_at(each, said)
        if (now.quiet or 0) >= FROZEN_LOOKS:
            log.error("part_frozen", part=name, pid=each.process.pid, looks=now.quiet)
            each.process.signal(signal.SIGKILL)
        if pulse.DRAINING in said and not each.leaving:
            log.info("part_drains", part=name, pid=each.process.pid)
            kept[f"{name}-{each.process.pid}"] = replace(now, leaving=True)
            kept[name] = Kept(each.part)


def looked_at(each: Kept, said: bytes) -> Kept:
    """A part after one look at its pulse."""
    now = time.monotonic()
    if said:
        return replace(each, quiet=0, looked_s=now)
    # Before its first pulse it starts, which takes as long as it takes.
    if each.quiet is None or now - each.looked_s < LOOK_S:
        return each
    return replace(each, quiet=each.quiet + 1, looked_s=now)


def _ended(each: Kept, code: int | None) -> Kept:
    now = time.monotonic()
    _close_ear(each)
    failures = 1 if now - each.started_s > SETTLED_S else each.failures + 1
    due_s = now + pause_s(failures)
    log.warning("part_ended", part=each.part.name, code=code, again_in_s=round(due_s - now, 1))
    return Kept(each.part, started_s=each.started_s, failures=failures, due_s=due_s)


def _close_ear(each: Kept) -> None:
    if each.ear is not None:
        os.close(each.ear)
