"""What is known of a machine from its files: how it ended, what its monitor said, what its console showed."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from app.domain.machine import TAIL_BYTES, Death, DeathCause, MonitorEvent
from app.ports import Clock
from infra.qemu import keeper, oom
from infra.qemu.home import Home, write_atomically

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[^\n\t -~\u00a0-\uffff]")


def death(home: Home, events: Iterable[MonitorEvent], clock: Clock) -> Death | None:
    """How the machine ended; None while any process of it lives, or where none was ever started."""
    written = keeper.read_exit(home)
    if written is None:
        written = _unwitnessed(home, clock)
    if written is None or written.cause is DeathCause.DEADLINE:
        return written
    if written.cause is DeathCause.ASKED:
        by_itself = _by_itself(events)
        return replace(written, cause=by_itself) if by_itself else written
    return _explained(home, written)


def killed_for_memory(home: Home) -> str | None:
    """What shows that the kernel killed this dead machine for want of memory; None where nothing does."""
    written = keeper.read_exit(home)
    return _kernels_word(home, written) if written is not None else None


def is_end(event: MonitorEvent) -> bool:
    """The guest ended itself, by this event; QEMU is paused and waits for us."""
    return _by_itself((event,)) is not None


def save_events(home: Home, events: Iterable[MonitorEvent]) -> None:
    """Keep them beside the machine, if it is not forgotten and the disk has room; they are in the worker's
    memory too.
    """
    with contextlib.suppress(OSError):
        write_atomically(home.events, json.dumps([asdict(event) for event in events]))


def load_events(home: Home) -> tuple[MonitorEvent, ...]:
    """What `save_events` kept last."""
    try:
        return tuple(MonitorEvent(**event) for event in json.loads(home.events.read_text()))
    except FileNotFoundError:
        return ()


def console_tail(home: Home) -> str:
    """The last 4 KiB of the guest's console, control characters removed."""
    return _tail(home.directory, "console")


def log_tail(home: Home) -> str:
    """The last 4 KiB of what QEMU itself complained of."""
    return _tail(home.directory, "log")


def _explained(home: Home, written: Death) -> Death:
    """The kernel's word, if it was killed for want of memory; else what QEMU itself said last."""
    said = _kernels_word(home, written)
    if said is not None:
        return replace(written, cause=DeathCause.OUT_OF_MEMORY, seen=said)
    return replace(written, seen=log_tail(home))


def _kernels_word(home: Home, written: Death) -> str | None:
    """Of a machine that was killed, and not by its keeper."""
    if written.cause is DeathCause.SIGNAL and written.signal != signal.SIGKILL:
        return None
    born = keeper.read_born(home)
    witnessed = written.cause in (DeathCause.SIGNAL, DeathCause.KEEPER_LOST)
    return oom.proof(home, born) if witnessed and born is not None else None


def _unwitnessed(home: Home, clock: Clock) -> Death | None:
    if keeper.read_born(home) is None or keeper.keeper_lives(home) or keeper.program_lives(home):
        return None
    # The keeper may have written its record between our two looks.
    return keeper.read_exit(home) or keeper.write_keeper_lost(home, clock.boot_ns())


def _by_itself(events: Iterable[MonitorEvent]) -> DeathCause | None:
    for event in events:
        if event.name == "GUEST_PANICKED":
            return DeathCause.PANICKED
        if event.name == "SHUTDOWN" and event.data.get("guest") is True:
            return DeathCause.SHUTDOWN
    return None


def _tail(directory: Path, name: str) -> str:
    """The keeper moves a full file to NAME.old; between the two renames either may be missing."""
    text = _end_of(directory / f"{name}.old") + _end_of(directory / name)
    return _CONTROL.sub("", text[-TAIL_BYTES:].decode(errors="replace"))


def _end_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return file.read(TAIL_BYTES)
    except FileNotFoundError:
        return b""
