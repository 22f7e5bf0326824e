"""What the deployment left in its cloud account: found, with what it costs, and made away with.

Nothing is decided by one listing: the cloud's may lag behind what it did. Each mending looks again at the one thing.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.domain.cloud import CloudSnapshot, Resource, ResourceKind, Volume
from app.domain.cloud_leak import Owners, leaked, resource_leak
from app.domain.leak import Leak, LeakKind
from app.domain.money import NS_PER_SECOND
from app.ports import Cloud, Ports
from app.ports.leaks import RowLeaks

# A volume that nobody has mounted lets go of its instance in seconds.
DETACH_S = 20.0
_PAUSE_S = 1.0


def in_account(ports: Ports, rows: RowLeaks) -> frozenset[Leak]:
    """Volumes and snapshots of this deployment that nobody owns, and rows whose resource is gone. Without an account
    there are none.

    Raises Unavailable, and CloudRefused(denied) where this host's role may not list them.
    """
    if ports.cloud is None:
        return frozenset()
    ports.resources.forget()
    volumes, snapshots = ports.cloud.volumes(), ports.cloud.snapshots()
    # The rows are read after the lists: what was made in between is not taken for a leak.
    return frozenset(leaked(volumes, snapshots, _owners(ports, rows, volumes)))


def mend_in_account(ports: Ports, rows: RowLeaks, leak: Leak) -> bool:
    """Make away with one, if it still is a leak; False if it is not, or not yet.

    A database that has never known a resource deletes none: it may be another deployment's. Nothing is taken from a
    host that is there: it may have it mounted under its forks. Raises CloudRefused, Unavailable.
    """
    cloud = ports.cloud
    if cloud is None:
        return False
    match leak.kind:
        case LeakKind.CLOUD_VOLUME:
            seen: Volume | CloudSnapshot | None = cloud.volume(leak.name)
        case LeakKind.CLOUD_SNAPSHOT:
            seen = cloud.snapshot(leak.name)
        case _:
            return _strike(ports, cloud, leak.name)
    owners = _owners(ports, rows, (seen,) if isinstance(seen, Volume) else ())
    row = _row_of(owners, leak.name) if seen is None else owners.row_of(seen)
    if seen is None:
        return _mark_gone(ports, row)
    if not owners.knows or resource_leak(seen, owners) is None:
        return False
    if owners.holder_of(seen) is not None or owners.spares(seen):
        return False
    if not _removed(ports, cloud, seen):
        return False
    _mark_gone(ports, row)
    return True


def _owners(ports: Ports, rows: RowLeaks, volumes: Iterable[Volume]) -> Owners:
    living = ports.resources.living()
    now_ns, deployment = rows.now_ns(), ports.deployments.now()
    lately = deployment.restored_within(ports.limits.restored_grace_ns, now_ns)
    of_rows = {row.host_id for row in living if row.host_id is not None}
    attached = {each.attachment.instance_id for each in volumes if each.attachment is not None}
    return Owners(
        now_ns=now_ns,
        rows={row.token: row for row in living},
        silent_ns={host.host_id: host.heartbeat_age_ns for host in ports.hosts.list()},
        busy=frozenset(each for each in of_rows | attached if ports.attempts.held_by(each)),
        bundles=ports.snapshots.bundle_ids(),
        knows=bool(living or ports.resources.made_within(0, now_ns + 1)),
        price=ports.rates.storage,
        restored_ns=deployment.since_ns if lately else None,
    )


def _removed(ports: Ports, cloud: Cloud, seen: Volume | CloudSnapshot) -> bool:
    if not isinstance(seen, Volume):
        cloud.delete_snapshot(seen.snapshot_id)
        return True
    if not _is_free(ports, cloud, seen):
        return False
    cloud.delete_volume(seen.volume_id)
    return True


def _is_free(ports: Ports, cloud: Cloud, volume: Volume) -> bool:
    """Detach it; whether it is attached nowhere by now. An instance that is gone has let go of it already."""
    if volume.attachment is None:
        return True
    cloud.detach(volume.volume_id, volume.attachment.instance_id)
    give_up_ns = ports.clock.boot_ns() + int(DETACH_S * NS_PER_SECOND)
    while ports.clock.boot_ns() < give_up_ns:
        now = cloud.volume(volume.volume_id)
        if now is None or now.attachment is None:
            return True
        ports.clock.pause(_PAUSE_S)
    return False


def _row_of(owners: Owners, cloud_id: str) -> Resource | None:
    return next((row for row in owners.rows.values() if row.cloud_id == cloud_id), None)


def _mark_gone(ports: Ports, row: Resource | None) -> bool:
    """Whether there was a row of it."""
    if row is not None:
        ports.resources.gone(row.token)
    return row is not None


def _strike(ports: Ports, cloud: Cloud, token: str) -> bool:
    """Mark a row as gone whose resource is not there when it is asked for by itself, either."""
    row = next((each for each in ports.resources.living() if each.token == token), None)
    if row is None or _is_there(cloud, row):
        return False
    ports.resources.gone(token)
    return True


def _is_there(cloud: Cloud, row: Resource) -> bool:
    if row.kind is ResourceKind.VOLUME:
        volume = cloud.volume(row.cloud_id) if row.cloud_id else cloud.volume_of(row.token)
        return volume is not None
    snapshot = cloud.snapshot(row.cloud_id) if row.cloud_id else cloud.snapshot_of(row.token)
    return snapshot is not None
