"""One host worker process: its ports, what looks after its machines, and the Celery worker in front."""

from __future__ import annotations

import structlog

from app.ids import claim_of
from infra import wiring
from infra.epochs import HOST, EpochMemory
from infra.settings import Settings
from infra.stack.pulse import Mouth
from workers.celery_app import work, worker_app
from workers.gate import Gate
from workers.presence import Presence, counted, pulsing
from workers.recovery import looked_after
from workers.spot import listening, zone_of
from workers.standing import HostStanding
from workers.tasks import Workbench
from workers.watch import Ringer

SMALLEST_FORK_MIB = 256

log = structlog.get_logger(__name__)


def run(settings: Settings, mouth: Mouth | None = None) -> None:
    """Work until SIGTERM, or until a drain that was asked for is over.

    `mouth` is how a supervisor hears of it. Raises Unavailable when the database is away at the start, or no machine
    can run here.
    """
    claim = claim_of(settings.host_id)
    with (
        wiring.control(settings, "worker") as control,
        wiring.scraped(settings, control.metrics, settings.worker_metrics_port),
        counted(control.ports, claim),
        wiring.metadata(settings) as metadata,
    ):
        ringer = Ringer(control.bells, claim)
        with wiring.host(settings, claim, ringer) as host:
            fingerprint = host.machines.fingerprint()
            log.info("host_fingerprint", host_id=settings.host_id, missing=fingerprint.missing)
            bench = Workbench(
                control.ports,
                host,
                control.bells,
                ringer,
                Gate(settings.forks_at_once),
                Gate(settings.builds_at_once),
            )
            slots = settings.host_slots or max(1, fingerprint.memory_mib // SMALLEST_FORK_MIB)
            fetches = host.bundles.stores_elsewhere
            zone = zone_of(settings.host_id, settings.zone, metadata)
            control.ports.hosts.register(fingerprint, slots, zone=zone, fetches=fetches)
            memory = EpochMemory(settings.dir, HOST)
            standing = HostStanding(control.ports, host, memory, bench.astray)
            standing.begin()
            presence = Presence(bench, standing.look)
            presence.begin()
            app = worker_app(settings, bench)
            leaks = (wiring.traces(settings), control.metrics.leaked)
            hears = listening(control.ports, settings.host_id, metadata, control.metrics.announced)
            with pulsing(bench, mouth), hears, looked_after(bench, presence, standing, *leaks):
                work(app, settings, bench, presence)
        ringer.close()
