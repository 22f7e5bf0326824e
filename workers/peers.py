"""The worker processes of one host, as their rows and the kernel tell of them: who lives, and who is no more.

A process holds its machines' channels for as long as it is there, frozen or not. So nobody takes over from one that may
still be: one that is silent for longer than its claims hold is ended first, by the number and start time in its row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from app.domain.worker import Worker
from app.ports import Workers
from infra.stack.process import Process, end_at_once

# A process that is silent at one look may only have been frozen together with whoever looks: it speaks at the next.
SILENT_LOOKS = 3

log = structlog.get_logger(__name__)


def process_of(worker: Worker) -> Process:
    """The process that a row tells of."""
    return Process(worker.pid, worker.started_ticks, worker.boot_id)


@dataclass(slots=True)
class Peers:
    """Who works on this host beside `claim`. `end` ends a process and says whether it is gone."""

    workers: Workers
    host_id: str
    claim: str
    lives: Callable[[Process], bool] = Process.alive
    end: Callable[[Process], bool] = end_at_once
    _silent: dict[str, int] = field(default_factory=dict)

    def living(self) -> frozenset[str]:
        """The claims of all processes that live, our own among them. The rows of those that are gone go here.

        A claim without a row is of a process that ended, or of one that never had a row.
        """
        found = {self.claim}
        for worker in self.workers.on(self.host_id):
            if worker.claim == self.claim:
                continue
            if self._lives(worker):
                found.add(worker.claim)
            else:
                self.workers.end(worker.claim)
        return frozenset(found)

    def _lives(self, worker: Worker) -> bool:
        process = process_of(worker)
        if not self.lives(process):
            log.warning("worker_gone", claim=worker.claim, pid=worker.pid)
            return False
        looks = self._silent.pop(worker.claim, 0) + 1 if worker.is_silent else 0
        if looks == 0:
            self._silent.pop(worker.claim, None)
            return True
        self._silent[worker.claim] = looks
        if looks < SILENT_LOOKS:
            return True
        silent_s = round(worker.heartbeat_age_ns / 1e9)
        log.error("worker_frozen", claim=worker.claim, pid=worker.pid, silent_s=silent_s)
        return not self.end(process)
