"""This worker process as others see it: a row with a heartbeat, a pulse for its supervisor, and its end when it drains.

Between a drain that is asked for and the end lies whatever the process holds: commands that run, forks that are held,
a template that is being built, a candidate that is being stored. Their channels and their way out are in this process,
so it stays for them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import structlog

from app.domain.worker import Worker
from app.errors import StaleClaim, Unavailable
from app.ports import Ports
from infra.release import release
from infra.stack.process import find
from infra.stack.pulse import ALIVE, DRAINING, Mouth
from infra.store.migrate import known_revision
from workers.pace import JOIN_S, begun
from workers.tasks import Workbench

REPLACED = 71

log = structlog.get_logger(__name__)


@contextmanager
def counted(ports: Ports, claim: str) -> Iterator[None]:
    """Inside, this process may have a row; it has none afterwards, unless the database is away: then the next one
    finds that its process is gone.
    """
    try:
        yield
    finally:
        with suppress(Unavailable):
            ports.workers.end(claim)


class Presence:
    """Of one process, from `begin` on; `beat` is for once a second.

    `look` says whether the database is the one that this host knows; while it is not, nothing is said or done.
    """

    def __init__(self, bench: Workbench, look: Callable[[], bool] = lambda: True) -> None:
        self._bench = bench
        self._look = look
        self._stop_taking: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Be known, before anything is claimed. Raises NotFound(unknown_host), Unavailable."""
        host, process = self._bench.host, find(os.getpid())
        assert process is not None  # it is this one
        self._bench.ports.workers.begin(
            Worker(
                claim=host.claim,
                host_id=host.host_id,
                boot_id=process.boot_id,
                pid=process.pid,
                started_ticks=process.started_ticks,
                version=release(),
                revision=known_revision(),
            )
        )

    def beat(self) -> None:
        """Say that this process lives, and drain if it is asked to; end it at once if it was taken for dead.

        Who is taken for dead was ended first. One that was not, because nobody here could see its number, must not go
        on with machines that are another's.
        """
        bench = self._bench
        if not self._look():
            return
        try:
            asked = bench.ports.workers.beat(bench.host.claim)
        except StaleClaim:
            log.error("worker_replaced", claim=bench.host.claim)
            os._exit(REPLACED)
        if asked and not bench.draining.is_set():
            log.info("worker_drains", claim=bench.host.claim)
            bench.draining.set()
            self._say_that_it_drains()
        if bench.draining.is_set() and self._holds_nothing():
            log.info("worker_drained", claim=bench.host.claim)
            # As if it was told to: the tasks that have begun are ended.
            os.kill(os.getpid(), signal.SIGTERM)

    def on_drain(self, stop_taking: Callable[[], object]) -> None:
        """What to do when the drain begins; at once, if it has."""
        with self._lock:
            self._stop_taking = stop_taking
        if self._bench.draining.is_set():
            stop_taking()

    def _say_that_it_drains(self) -> None:
        with self._lock:
            stop_taking = self._stop_taking
        if stop_taking is not None:
            stop_taking()

    def _holds_nothing(self) -> bool:
        """Nothing is brought up, so nothing is claimed any more: what the rows say then stays so."""
        bench = self._bench
        if not bench.brings_up_nothing or bench.stopping.is_set():
            return False
        if not bench.settling.is_idle:
            return False
        held = bench.ports.attempts.held_by(bench.host.host_id)
        return all(each.attempt.claim != bench.host.claim for each in held)


@contextmanager
def pulsing(bench: Workbench, mouth: Mouth | None) -> Iterator[None]:
    """Inside, its supervisor hears once a second that this process runs, and whether it drains.

    It needs nothing but its own threads for that: no database, no queue.
    """
    if mouth is None:
        yield
        return
    over = threading.Event()

    def say() -> None:
        if not mouth(DRAINING if bench.draining.is_set() else ALIVE):
            over.set()  # nobody listens any more

    thread = begun("pulse", say, over)
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=JOIN_S)
