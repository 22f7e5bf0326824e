"""A process of the control plane as others see it: a row that says which release it is of, and a heartbeat."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from app.domain.process import ControlProcess
from app.errors import Unavailable
from app.ids import new_id
from app.ports import Ports
from infra.release import release
from infra.store.migrate import known_revision
from workers.pace import beside

BEAT_S = 2.0


@contextmanager
def resident(ports: Ports, component: str) -> Iterator[None]:
    """Inside, this process has a row; begun again where the database has lost it."""
    here = ControlProcess(
        process_id=new_id("proc"),
        component=component,
        machine=socket.gethostname(),
        pid=os.getpid(),
        release=release(),
        revision=known_revision(),
    )

    def beat() -> None:
        if not ports.processes.beat(here.process_id):
            ports.processes.begin(here)

    try:
        with beside("residence", beat, period_s=BEAT_S):
            yield
    finally:
        # Without the database it goes when it has been silent for a day.
        with suppress(Unavailable):
            ports.processes.end(here.process_id)
