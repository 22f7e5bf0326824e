"""Every port in one place to import from, and the bundle of them that verbs take."""

from __future__ import annotations

from app.ports.audit import Audit, Uploads
from app.ports.bells import Bells, Waiter, Wakes
from app.ports.bundle import HostPorts, Ports
from app.ports.callers import Keys, Projects, Receipts
from app.ports.cloud import Cloud, Resources
from app.ports.deployment import Deployments, Processes
from app.ports.hosts import Hosts
from app.ports.meters import Meters
from app.ports.store import (
    Attempts,
    Builds,
    Execs,
    Quotes,
    Runs,
    Snapshots,
)
from app.ports.usage import Usage
from app.ports.warm import WarmTargets
from app.ports.workers import Workers
from app.ports.world import (
    Blobs,
    Bundles,
    Clock,
    Guest,
    GuestEvents,
    Images,
    Machines,
)

__all__ = [
    "Attempts",
    "Audit",
    "Bells",
    "Blobs",
    "Builds",
    "Bundles",
    "Clock",
    "Cloud",
    "Deployments",
    "Execs",
    "Guest",
    "GuestEvents",
    "HostPorts",
    "Hosts",
    "Images",
    "Keys",
    "Machines",
    "Meters",
    "Ports",
    "Processes",
    "Projects",
    "Quotes",
    "Receipts",
    "Resources",
    "Runs",
    "Snapshots",
    "Uploads",
    "Usage",
    "Waiter",
    "Wakes",
    "WarmTargets",
    "Workers",
]
