"""What a host says of itself: that it is there, which bundles it has, and how much disk is left."""

from __future__ import annotations

from app.domain.disk import DiskRoom
from app.ports import HostPorts, Ports


def beat(ports: Ports, host: HostPorts) -> None:
    """Say it now. Raises Unavailable; NotFound(unknown_host) where the host is not registered."""
    ports.hosts.heartbeat(
        host.host_id,
        host.bundles.mounted(),
        () if host.bundles.stores_elsewhere else host.bundles.known(),
        disk=DiskRoom(host.disk.free_bytes(), host.disk_reserve_bytes),
        unmountable=host.mounts.told(ports.clock.boot_ns()),
    )
