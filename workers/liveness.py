"""A worker that stopped consuming ends itself: its machines live on with their keepers, and the next one adopts them.

Workers that take no task any more after their queue came back are a long history of reports. Only a real task through
the real queue tells; a thread that still runs tells nothing.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

import structlog

from app.errors import Unavailable
from workers.pace import steadily

PERIOD_S = 10.0
ANSWER_S = 10.0
# Well beyond any backlog that the pool works off: to end a worker that is only busy would help nobody.
DEAF_S = 120.0
EXIT_CODE = 70

log = structlog.get_logger(__name__)


class Pulse(Protocol):
    """The part of the bells that liveness needs."""

    def ping(self) -> None: ...
    def echo(self, queue: str, token: str) -> None: ...
    def echoed(self, queue: str, token: str, timeout_s: float) -> bool: ...


@dataclass(slots=True)
class Liveness:
    """Since when nothing was heard of this process's own consumer, though its queue answers."""

    pulse: Pulse
    queue: str
    clock_s: Callable[[], float] = time.monotonic
    heard_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.heard_s = self.clock_s()

    def deaf_for_s(self) -> float:
        """Ask once; how long it has been deaf. A queue that is away is nobody's deafness."""
        token = secrets.token_hex(8)
        self.pulse.echo(self.queue, token)
        if self.pulse.echoed(self.queue, token, ANSWER_S) or self._is_away():
            self.heard_s = self.clock_s()
        return self.clock_s() - self.heard_s

    def _is_away(self) -> bool:
        try:
            self.pulse.ping()
        except Unavailable as away:
            # Who is not let in any more begins anew, perhaps with credentials that are.
            return away.code != "queue_denied"
        return False


def watch(pulse: Pulse, queue: str, stop: Event) -> None:
    """Until `stop` is set; ends the process when it has been deaf to its own queue for too long."""
    liveness = Liveness(pulse, queue)
    steadily("liveness", lambda: _end_if_deaf(liveness, stop), stop, period_s=PERIOD_S)


def _end_if_deaf(liveness: Liveness, stop: Event) -> None:
    deaf_s = liveness.deaf_for_s()
    if deaf_s < DEAF_S or stop.is_set():
        return
    log.error("worker_deaf", deaf_s=round(deaf_s))
    os._exit(EXIT_CODE)  # threads that hang would outlast any politer end
