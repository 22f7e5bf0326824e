"""What is left when all hosts are down: in the account, in its storage, in the kernel, in the rows and in the queue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import RedisError

from drills.rehearsal import redis
from drills.rehearsal.deployment import Deployment
from drills.rehearsal.hosts import Host
from drills.rehearsal.storage import loops, mounts_of
from drills.rows import unfinished

_GROUPS = Path("/sys/fs/cgroup/promigence")
# What Celery keeps in Redis for as long as it lives; every other key has to expire by itself, queues too: nobody reads.
_LASTING = ("_kombu.binding", "unacked")
_RESOURCES = "SELECT token, kind, cloud_id FROM resource WHERE gone_ns IS NULL ORDER BY token"


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that was looked at: what belongs there, by name, and what does not, as sentences."""

    belongs: dict[str, Any]
    leftovers: tuple[str, ...]


def look(here: Deployment, names: frozenset[str]) -> Seen:
    """Once; `names` are all machines that there ever were. The control plane is up, every host is down or gone."""
    roots = _root_volumes(here)
    belongs = {
        "instances": sorted(roots.values()),
        "root_volumes": sorted(roots),
        "loop_devices": [str(file) for _, file in _loops(here) if _is_zone(here, file)],
        "mounts": [
            str(where)
            for device, file in _loops(here)
            if _is_zone(here, file)
            for where in mounts_of(device)
        ],
    }
    found = (
        *_account(here, frozenset(roots)),
        *_storage(here),
        *_kernel(here, names),
        *(line for host in here.hosts for line in _host(host)),
        *_rows(here),
        *_keys(here),
    )
    return Seen(belongs, found)


def _root_volumes(here: Deployment) -> dict[str, str]:
    """What the account made by itself: the disk that each instance booted from, as long as the instance lives."""
    reservations = here.account.ec2().describe_instances()["Reservations"]
    living = [
        instance
        for reservation in reservations
        for instance in reservation["Instances"]
        if instance["State"]["Name"] != "terminated"
    ]
    return {
        mapping["Ebs"]["VolumeId"]: instance["InstanceId"]
        for instance in living
        for mapping in instance["BlockDeviceMappings"]
        if mapping["DeviceName"] == instance["RootDeviceName"]
    }


def _account(here: Deployment, roots: frozenset[str]) -> Iterator[str]:
    ec2 = here.account.ec2()
    for volume in ec2.describe_volumes()["Volumes"]:
        if volume["VolumeId"] not in roots:
            yield f"volume {volume['VolumeId']} ({volume['State']})"
    for snapshot in ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]:
        yield f"snapshot {snapshot['SnapshotId']} ({snapshot['State']})"


def _storage(here: Deployment) -> Iterator[str]:
    """Bytes of the zone, whatever its API says."""
    for folder in ("volumes", "snapshots"):
        for file in (here.zone.storage / "zone" / folder).iterdir():
            yield f"the bytes of {file.name} in the zone's {folder}"


def _kernel(here: Deployment, names: frozenset[str]) -> Iterator[str]:
    for device, file in _loops(here):
        if not _is_zone(here, file):
            yield f"loop device {device} on {file.name}"
        for where in mounts_of(device):
            if where != here.zone.storage / "zone":
                yield f"mount {where}"
    for name in names:
        if (_GROUPS / name).exists():
            yield f"control group {name}"


def _host(host: Host) -> Iterator[str]:
    for link in host.devices.iterdir() if host.devices.exists() else ():
        yield f"device link {link.name} of {host.instance_id}"
    for process in host.machine_processes():
        yield f"process {process.pid} of a machine of {host.instance_id}"
    for folder in ("machines", "bundles/staged", "bundles/stored"):
        path = host.directory / folder
        for entry in path.iterdir() if path.exists() else ():
            yield f"{entry.name} in {folder} of {host.instance_id}"


def _rows(here: Deployment) -> Iterator[str]:
    yield from unfinished(here.database)
    for row in here.database.rows(_RESOURCES):
        yield f"the row of {row['kind']} {row['cloud_id'] or row['token']} says that it is there"


def _keys(here: Deployment) -> Iterator[str]:
    with redis.asking(here.queue) as client:
        try:
            for raw in client.scan_iter(count=1000):
                key = raw.decode()
                if client.ttl(key) == -1 and not key.startswith(_LASTING):
                    yield f"Redis key {key} of no end"
        except RedisError as error:
            yield f"Redis does not answer: {type(error).__name__}"


def _loops(here: Deployment) -> list[tuple[str, Path]]:
    return list(loops(here.zone.folder))


def _is_zone(here: Deployment, file: Path) -> bool:
    return file == here.zone.storage / "zone.xfs"
