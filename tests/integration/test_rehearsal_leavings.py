"""What the rehearsal calls left behind: each thing planted where a mistake of ours would leave it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drills.rehearsal import redis
from drills.rehearsal.deployment import Deployment
from drills.rehearsal.hosts import Host
from drills.rehearsal.leavings import look
from drills.rehearsal.zone import REGION, ZONE, running
from infra.aws.session import Account
from tests.contract.moto_server import credentials
from tests.integration.volumes import needs_volumes

pytestmark = needs_volumes


class Rows:
    """A database in which everything has ended; `resources` are those whose row says that they are there."""

    def __init__(self) -> None:
        self.resources: list[dict[str, Any]] = []

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        return self.resources if "FROM resource" in statement else []


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Deployment]:
    """A zone and a queue with one host that is down."""
    with (
        credentials(tmp_path),
        running(tmp_path / "zone") as zone,
        redis.running() as queue,
    ):
        account = Account(REGION, zone.url)
        answer = account.ec2().run_instances(
            ImageId="ami-12345678", MinCount=1, MaxCount=1, Placement={"AvailabilityZone": ZONE}
        )
        instance_id = answer["Instances"][0]["InstanceId"]
        told = {"PROMIGENCE_DEVICES": str(zone.devices(instance_id))}
        host = Host(instance_id, tmp_path / "host-1", told)
        yield Deployment(
            zone=zone,
            account=account,
            client=None,  # type: ignore[arg-type]
            database=Rows(),  # type: ignore[arg-type]
            queue=queue,
            control=tmp_path / "control",
            hosts=(host,),
        )


def test_nothing_is_left_where_nothing_was_made(here: Deployment) -> None:
    seen = look(here, frozenset({"att_1"}))

    assert seen.leftovers == ()
    assert seen.belongs["instances"] == [here.hosts[0].instance_id]
    assert len(seen.belongs["root_volumes"]) == 1
    assert seen.belongs["mounts"] == [str(here.zone.storage / "zone")]
    assert seen.belongs["loop_devices"] == [str(here.zone.storage / "zone.xfs")]


def test_whatever_is_left_is_found(here: Deployment) -> None:
    (host,), ec2 = here.hosts, here.account.ec2()
    volume = ec2.create_volume(AvailabilityZone=ZONE, Size=1)["VolumeId"]
    ec2.attach_volume(VolumeId=volume, InstanceId=host.instance_id, Device="/dev/sdf")
    snapshot = ec2.create_snapshot(VolumeId=volume)["SnapshotId"]
    (host.directory / "bundles" / "stored" / "b_1").mkdir(parents=True)
    (host.machines / "att_1").mkdir(parents=True)
    here.database.resources.append({"kind": "volume", "cloud_id": None, "token": "t"})  # type: ignore[attr-defined]
    with redis.asking(here.queue) as client:
        client.set("forgotten", "1")
        client.lpush(f"host.{host.instance_id}", "bell")

    left = look(here, frozenset()).leftovers

    name = f"nvme-Amazon_Elastic_Block_Store_{volume.replace('-', '')}"
    device = (host.devices / name).readlink()
    assert set(left) == {
        f"volume {volume} (in-use)",
        f"snapshot {snapshot} (completed)",
        f"the bytes of {volume} in the zone's volumes",
        f"the bytes of {snapshot} in the zone's snapshots",
        f"loop device {device} on {volume}",
        f"device link {name} of {host.instance_id}",
        f"b_1 in bundles/stored of {host.instance_id}",
        f"att_1 in machines of {host.instance_id}",
        "the row of volume t says that it is there",
        "Redis key forgotten of no end",
        f"Redis key host.{host.instance_id} of no end",
    }
