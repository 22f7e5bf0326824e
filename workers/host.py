"""One host worker process: its ports, what looks after its machines, and the Celery worker in front."""

from __future__ import annotations

import structlog

from app.ids import new_id
from infra import wiring
from infra.settings import Settings
from workers.celery_app import work, worker_app
from workers.gate import Gate
from workers.recovery import looked_after
from workers.tasks import Workbench
from workers.watch import Ringer

SMALLEST_FORK_MIB = 256

log = structlog.get_logger(__name__)


def run(settings: Settings) -> None:
    """Work until SIGTERM. Raises Unavailable when the database is away at the start, or no machine can run here."""
    with wiring.control(settings) as control:
        claim = new_id("claim")
        ringer = Ringer(control.bells, claim)
        with wiring.host(settings, claim, ringer) as host:
            fingerprint = host.machines.fingerprint()
            log.info("host_fingerprint", host_id=settings.host_id, missing=fingerprint.missing)
            slots = settings.host_slots or max(1, fingerprint.memory_mib // SMALLEST_FORK_MIB)
            bench = Workbench(
                control.ports,
                host,
                control.bells,
                ringer,
                Gate(settings.forks_at_once),
                Gate(settings.builds_at_once),
            )
            app = worker_app(settings, bench)
            with looked_after(control.ports, host, wiring.traces(settings), slots):
                work(app, settings, bench)
        ringer.close()
