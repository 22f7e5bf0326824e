"""The rehearsal's zone: volumes with real bytes behind the EC2 API, and what AWS refuses is refused."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from app.domain.cloud import TAG_TOKEN, VolumeState
from app.errors import CloudRefused, Unavailable
from drills.rehearsal import storage
from drills.rehearsal.zone import REGION, ZONE, Zone, running
from infra.aws.ec2 import Ec2Cloud
from infra.aws.session import Account
from tests.contract.moto_server import credentials
from tests.integration.volumes import needs_volumes

pytestmark = needs_volumes

DEVICE = "/dev/sdf"
BYTES = bytes(range(256)) * 4096


@dataclass(frozen=True, slots=True)
class Here:
    """A zone and the cloud as a host sees it."""

    zone: Zone
    account: Account
    cloud: Ec2Cloud

    def instance(self, zone: str = ZONE) -> str:
        """A fresh one."""
        answer = self.account.ec2().run_instances(
            ImageId="ami-12345678", MinCount=1, MaxCount=1, Placement={"AvailabilityZone": zone}
        )
        return answer["Instances"][0]["InstanceId"]

    def volume(self, snapshot_id: str | None = None, size_gib: int = 1, zone: str = ZONE) -> str:
        made = self.cloud.create_volume(
            token=uuid4().hex, zone=zone, size_gib=size_gib, snapshot_id=snapshot_id, tags={}
        )
        return made.volume_id

    def device(self, volume_id: str, instance_id: str) -> Path:
        return self.zone.devices(instance_id) / storage.link_name(volume_id)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    folder = tmp_path_factory.mktemp("zone")
    with credentials(folder), running(folder / "z") as zone:
        account = Account(REGION, zone.url)
        yield Here(zone, account, Ec2Cloud(account, "test", time.sleep))
    assert not list(storage.loops(folder))
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()


@pytest.fixture
def instance(here: Here) -> str:
    return here.instance()


def test_what_one_host_writes_another_reads_from_the_snapshot(here: Here, instance: str) -> None:
    written = here.volume()
    here.cloud.attach(written, instance, DEVICE)
    here.device(written, instance).write_bytes(BYTES)
    here.cloud.detach(written, instance)
    snapshot = here.cloud.create_snapshot(token="s", volume_id=written, tags={}).snapshot_id
    here.cloud.delete_volume(written)

    others = (here.instance(), here.instance())
    volumes = [here.volume(snapshot, size_gib=2) for _ in others]
    for volume_id, other in zip(volumes, others, strict=True):
        here.cloud.attach(volume_id, other, DEVICE)
    devices = [here.device(*each) for each in zip(volumes, others, strict=True)]

    assert [_first_bytes(device) for device in devices] == [BYTES, BYTES]
    devices[0].write_bytes(b"changed")
    assert _first_bytes(devices[1]) == BYTES
    assert not here.device(written, instance).is_symlink()


def test_a_volume_is_in_one_place(here: Here, instance: str) -> None:
    volume_id, other = here.volume(), here.instance()
    here.cloud.attach(volume_id, instance, DEVICE)

    assert _refusal(lambda: here.cloud.attach(volume_id, other, DEVICE)) == "attached_elsewhere"
    second = here.volume()
    assert _refusal(lambda: here.cloud.attach(second, instance, DEVICE)) == "device_taken"
    assert _refusal(lambda: here.cloud.delete_volume(volume_id)) == "in_use"
    assert here.zone.devices(other).exists() is False


def test_another_zone_and_a_volume_that_is_too_small(here: Here, instance: str) -> None:
    away = here.volume(zone=f"{REGION}b")
    snapshot = here.cloud.create_snapshot(token="x", volume_id=here.volume(size_gib=2), tags={})

    assert _refusal(lambda: here.cloud.attach(away, instance, DEVICE)) == "wrong_zone"
    assert _refusal(lambda: here.volume(zone=f"{REGION}z")) == "wrong_zone"
    assert _refusal(lambda: here.volume(snapshot.snapshot_id, size_gib=1)) == "too_small"


def test_a_volume_that_is_mounted_stays_where_it_is(
    here: Here, instance: str, tmp_path: Path
) -> None:
    volume_id = here.volume()
    here.cloud.attach(volume_id, instance, DEVICE)
    device = here.device(volume_id, instance)
    _run("mke2fs", "-q", str(device))
    _run("mount", str(device), str(tmp_path))
    try:
        here.cloud.detach(volume_id, instance)
        shown = here.cloud.volume(volume_id)
        assert shown is not None
        assert shown.attachment is not None
        assert device.exists()
    finally:
        _run("umount", str(tmp_path))
    here.cloud.detach(volume_id, instance)
    assert not device.is_symlink()


def test_one_token_is_one_volume_also_when_the_answer_was_lost(here: Here) -> None:
    def make(size_gib: int = 1) -> str:
        made = here.cloud.create_volume(
            token="once", zone=ZONE, size_gib=size_gib, snapshot_id=None, tags={}
        )
        return made.volume_id

    here.zone.trouble("CreateVolume", code="InternalError", done=True)
    made = make()

    tokens = [found.tags[TAG_TOKEN] for found in here.cloud.volumes()]
    assert tokens.count("once") == 1
    assert make() == made
    assert _refusal(lambda: make(2)) == "refused"


def test_it_can_be_told_to_refuse_and_to_be_late(here: Here) -> None:
    volume_id = here.volume()
    here.zone.trouble("DeleteVolume", code="UnauthorizedOperation", status=403, delay_s=0.3)
    began = time.monotonic()

    assert _refusal(lambda: here.cloud.delete_volume(volume_id)) == "denied"
    assert time.monotonic() - began >= 0.3
    here.cloud.delete_volume(volume_id)
    assert here.cloud.volume(volume_id) is None


def test_what_a_terminated_instance_had_is_free_or_gone_with_it(here: Here, instance: str) -> None:
    free, bound = here.volume(), here.volume()
    here.cloud.attach(free, instance, DEVICE)
    here.cloud.attach(bound, instance, "/dev/sdg")
    here.cloud.bind(bound, instance)
    shown = here.cloud.volume(bound)
    assert shown is not None
    assert shown.attachment is not None
    assert shown.attachment.bound

    here.account.ec2().terminate_instances(InstanceIds=[instance])

    left = here.cloud.volume(free)
    assert left is not None
    assert left.state is VolumeState.AVAILABLE
    assert here.cloud.volume(bound) is None
    assert not any(here.zone.devices(instance).iterdir())


def test_metadata_wants_a_token_of_this_very_instance(here: Here, instance: str) -> None:
    with httpx2.Client(trust_env=False, timeout=10) as client:
        mine, other = (here.zone.metadata_url(each) for each in (instance, here.instance()))
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = client.put(f"{mine}/latest/api/token", headers=ttl).text
        known = {"X-aws-ec2-metadata-token": token}

        def ask(base: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
            answer = client.get(f"{base}/latest/meta-data/{path}", headers=headers)
            return answer.status_code, answer.text

        assert client.put(f"{mine}/latest/api/token").status_code == 400
        assert ask(mine, "instance-id", {})[0] == 401
        assert ask(other, "instance-id", known)[0] == 401
        assert ask(mine, "instance-id", known) == (200, instance)
        assert ask(mine, "placement/availability-zone", known) == (200, ZONE)
        assert ask(mine, "spot/instance-action", known)[0] == 404
        here.zone.give_notice(instance, 120)
        assert '"action": "terminate"' in ask(mine, "spot/instance-action", known)[1]


def test_what_a_killed_one_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    folder, devices, mounted = tmp_path / "s", tmp_path / "devices", tmp_path / "mounted"
    mounted.mkdir()
    killed = storage.opened(folder)
    here = killed.__enter__()
    here.create("vol-1", 1, None)
    device = here.attach("vol-1", devices)
    _run("mke2fs", "-q", device)
    _run("mount", device, str(mounted))

    with storage.opened(folder) as again:
        assert not again.volumes()
        assert not again.attached()
    assert not list(storage.loops(folder))
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    del killed


def _refusal(act: Callable[[], object]) -> str:
    with pytest.raises((CloudRefused, Unavailable)) as caught:
        act()
    return caught.value.code


def _first_bytes(device: Path) -> bytes:
    with device.open("rb") as opened:
        return opened.read(len(BYTES))


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=30)
