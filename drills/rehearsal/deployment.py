"""A whole deployment on one machine: the zone, PostgreSQL, Redis, a control plane, and hosts that come and go."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.stack import SERVER, client_of, keep_logs, start, stop, uninterrupted
from drills import postgres
from drills.postgres import Postgres
from drills.rehearsal import redis, zone
from drills.rehearsal.hosts import Host
from drills.rehearsal.zone import REGION, ZONE, Zone
from infra.aws.session import Account
from promigence import Promigence

DEPLOYMENT = "rehearsal"
BUCKET = "promigence-rehearsal"
HOSTS = 3
SLOTS = 8
CONTROL = "control"
# Any that the mock lets through; whose machines are real is this drill's own.
_IMAGE = "ami-12345678"
_GROUP = "promigence-hosts"
_MEND_S = 60.0
_CREDENTIALS = "[default]\naws_access_key_id = rehearsal\naws_secret_access_key = rehearsal\n"


@dataclass(frozen=True, slots=True)
class Deployment:
    """It runs; `hosts` are instances that may be up or not. `database` and `queue` as the drill asks them directly."""

    zone: Zone
    account: Account
    client: Promigence
    database: Postgres
    queue: str
    control: Path
    hosts: tuple[Host, ...]

    def terminate(self, host: Host) -> None:
        """As spot capacity goes: the instance is no more, and lets go of its volumes."""
        self.account.ec2().terminate_instances(InstanceIds=[host.instance_id])

    def mend(self, *directories: Path) -> None:
        """As an operator who does not wait for the reapers: `doctor --fix` in each of these stacks."""
        for directory in directories:
            argv = (str(SERVER), "doctor", "--fix", "--dir", str(directory))
            # What it finds, and whether it could mend that, is seen by whoever looks for leftovers.
            subprocess.run(argv, stdout=sys.stderr, check=False, timeout=_MEND_S)


@contextmanager
def deployed(folder: Path) -> Iterator[Deployment]:
    """A control plane that is up and hosts that are not, in a folder of their own; nothing of it is there afterwards.

    What a rehearsal left that was killed goes first. After an error the logs of all stacks are kept (`kept_logs`).
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _stop_all(folder)
    credentials = folder / "credentials"
    credentials.write_text(_CREDENTIALS)
    # For this process and whatever it starts.
    os.environ |= {
        "AWS_SHARED_CREDENTIALS_FILE": str(credentials),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with zone.running(folder / "zone") as here:
        # Only now: what was mounted in it is not any more.
        _remove_all(folder)
        with postgres.running(_database_folder(folder)) as database, redis.running() as queue:
            yield from _running(folder, here, database, queue)
    # The logs of an error stay.
    for name in ("zone", "credentials"):
        _remove(folder / name)
    _remove_all(folder)


def _running(folder: Path, here: Zone, database: Postgres, queue: str) -> Iterator[Deployment]:
    account = Account(REGION, here.url)
    account.s3().create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    shared = _shared(here, database, queue)
    control = folder / CONTROL
    hosts = tuple(
        Host(instance_id, folder / f"host-{n}", {**shared, **_of_host(here, instance_id)})
        for n, instance_id in enumerate(_instances(account), start=1)
    )
    try:
        start(control, None, {**shared, **_of_control()})
        with client_of(control) as client:
            yield Deployment(here, account, client, database, queue, control, hosts)
    except Exception:
        for directory in (control, *(host.directory for host in hosts)):
            keep_logs(directory)
        raise
    finally:
        with uninterrupted():
            _stop_all(folder)


def _shared(here: Zone, database: Postgres, queue: str) -> Mapping[str, str]:
    """What control plane and hosts are both told."""
    told = {
        "DATABASE_URL": f"postgresql+psycopg://postgres@/postgres?host={database.socket.parent}",
        "REDIS_URL": queue,
        "BUNDLES": "ebs",
        "AWS_REGION": REGION,
        "AWS_ENDPOINT": here.url,
        "DEPLOYMENT": DEPLOYMENT,
        "BLOBS": f"s3://{BUCKET}/blobs",
    }
    return {f"PROMIGENCE_{name}": value for name, value in told.items()}


def _of_control() -> Mapping[str, str]:
    """What the control plane alone is told: whose size it may move, here not at all."""
    told = {
        "PARTS": json.dumps(["api", "billing", "flower"]),
        "FLEET": _GROUP,
        "FLEET_MIN": str(HOSTS),
        "FLEET_MAX": str(HOSTS),
    }
    return {f"PROMIGENCE_{name}": value for name, value in told.items()}


def _of_host(here: Zone, instance_id: str) -> Mapping[str, str]:
    """What an instance's user data would write, with this zone's places instead of the ones on EC2."""
    told = {
        "PARTS": json.dumps(["worker"]),
        "HOST_ID": instance_id,
        "HOST_SLOTS": str(SLOTS),
        "DEVICES": str(here.devices(instance_id)),
        "METADATA_URL": here.metadata_url(instance_id),
    }
    return {f"PROMIGENCE_{name}": value for name, value in told.items()}


def _instances(account: Account) -> list[str]:
    """An Auto Scaling group of fixed size. What it starts for one that is lost, nobody makes a host of here."""
    account.ec2().create_launch_template(
        LaunchTemplateName=_GROUP,
        LaunchTemplateData={"ImageId": _IMAGE, "InstanceType": "m8i.xlarge"},
    )
    groups = account.autoscaling()
    groups.create_auto_scaling_group(
        AutoScalingGroupName=_GROUP,
        LaunchTemplate={"LaunchTemplateName": _GROUP, "Version": "$Latest"},
        MinSize=HOSTS,
        MaxSize=HOSTS,
        DesiredCapacity=HOSTS,
        AvailabilityZones=[ZONE],
        NewInstancesProtectedFromScaleIn=True,
    )
    found = groups.describe_auto_scaling_groups(AutoScalingGroupNames=[_GROUP])
    return [each["InstanceId"] for each in found["AutoScalingGroups"][0]["Instances"]]


def _stop_all(folder: Path) -> None:
    """Hosts first: each says in the rows what became of its machines. One that cannot be stopped leaves none other."""
    with ExitStack() as last_first:
        for directory in (folder / CONTROL, *sorted(folder.glob("host-*"))):
            if directory.is_dir():
                last_first.callback(stop, directory)


def _remove_all(folder: Path) -> None:
    for directory in (*folder.glob("host-*"), folder / CONTROL):
        _remove(directory)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _database_folder(folder: Path) -> Path:
    """One for each checkout: as root the server runs as another user, who may not look into any."""
    name = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"promigence-rehearsal-{name}"
