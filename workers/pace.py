"""Something done every so often, for as long as a process lives: it keeps its pace and outlives what it depends on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import structlog

from app.errors import Unavailable

JOIN_S = 5.0

Act = Callable[[], object]
Guard = Callable[[Act], Act]

log = structlog.get_logger(__name__)


def ever(act: Act) -> Act:
    """The guard that lets everything be done."""
    return act


def steadily(name: str, act: Callable[[], object], stop: Event, *, period_s: float = 1.0) -> None:
    """Do it every period until `stop` is set. A turn that takes longer than a period costs the turns it ran over.

    What is done here is idempotent and moves rows by whole transactions. So of a turn that failed it is known that the
    rows are sound and that the next turn does what this one left: no error ends the pace, and each is logged, the same
    one once.
    """
    last_error: str | None = None
    due = time.monotonic()
    while not stop.is_set():
        error = _turn(name, act, last_error)
        if last_error is not None and error is None:
            log.info("pace_resumed", pace=name)
        last_error = error
        due = max(due + period_s, time.monotonic())
        stop.wait(due - time.monotonic())


def begun(name: str, act: Callable[[], object], stop: Event, *, period_s: float = 1.0) -> Thread:
    """The same in a thread of its own, which dies with the process."""
    thread = Thread(
        target=steadily,
        args=(name, act, stop),
        kwargs={"period_s": period_s},
        name=name,
        daemon=True,
    )
    thread.start()
    return thread


@contextmanager
def beside(name: str, act: Callable[[], object], *, period_s: float = 1.0) -> Iterator[None]:
    """Inside, it is done beside whatever else this process does."""
    stop = Event()
    thread = begun(name, act, stop, period_s=period_s)
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=JOIN_S)


def stamp(path: Path, boot_ns: int) -> None:
    """Note that a turn was done, for whoever asks whether this process is well."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"pid": os.getpid(), "boot_ns": boot_ns}))
    fresh.replace(path)


def stamped(path: Path) -> tuple[int, int] | None:
    """(pid, boot_ns) of the last stamp; None when there is none that can be read."""
    try:
        noted = json.loads(path.read_text())
        return int(noted["pid"]), int(noted["boot_ns"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _turn(name: str, act: Callable[[], object], last_error: str | None) -> str | None:
    try:
        act()
    except Unavailable as away:
        if last_error != away.code:
            log.warning("pace_waits", pace=name, code=away.code, error=away.message)
        return away.code
    except Exception as error:
        said = repr(error)
        if last_error != said:
            log.exception("pace_failed", pace=name)
        return said
    return None
