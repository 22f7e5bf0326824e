"""AWS's API on loopback, by moto: a server for clients of this process and of others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest
from moto.server import ThreadedMotoServer

from infra.aws.ec2 import Ec2Cloud
from infra.aws.session import Account
from infra.conformance_cloud import Subject

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client

REGION = "us-east-1"
# moto takes any; what goes out is signed all the same, by what a file says, as an operator's would.
_CREDENTIALS = "[default]\naws_access_key_id = testing\naws_secret_access_key = testing\n"


@contextmanager
def credentials(directory: Path) -> Iterator[pytest.MonkeyPatch]:
    """Inside, boto3 finds credentials in `directory` and nowhere else; the environment as it is then."""
    file = directory / "credentials"
    file.write_text(_CREDENTIALS)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.delenv(name, raising=False)
        yield environment


@contextmanager
def moto_server(directory: Path) -> Iterator[str]:
    """Inside, the URL of a server with an empty account; boto3 finds credentials for it in `directory`."""
    with credentials(directory) as environment:
        # Else about 1,300 images and their snapshots are there, owned by the account that asks.
        environment.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        # One line a request.
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        try:
            yield "http://{}:{}".format(*server.get_host_and_port())
        finally:
            server.stop()


def empty(endpoint: str) -> None:
    """Forget all that was made in this account."""
    httpx2.post(f"{endpoint}/moto-api/reset", timeout=30).raise_for_status()


def instance(account: Account, zone: str = "a") -> str:
    """The id of a new running instance in that zone of the account's region."""
    ec2 = _client(account)
    image = ec2.register_image(Name="base", RootDeviceName="/dev/xvda")["ImageId"]
    made = ec2.run_instances(
        ImageId=image,
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        Placement={"AvailabilityZone": f"{account.region}{zone}"},
    )
    return made["Instances"][0]["InstanceId"]


def subject(account: Account, ours: Ec2Cloud, deployment: str, theirs: Ec2Cloud) -> Subject:
    """An account of that API for the checks of the contract; `theirs` is another deployment in it."""
    zone = f"{account.region}a"

    def foreign() -> str:
        made = theirs.create_volume(
            token="theirs", zone=zone, size_gib=1, snapshot_id=None, tags={}
        )
        frozen = theirs.create_snapshot(token="theirs", volume_id=made.volume_id, tags={})
        return frozen.snapshot_id

    return Subject(
        cloud=ours,
        deployment=deployment,
        zone=zone,
        far_zone=f"{account.region}b",
        instance=instance(account),
        neighbour=instance(account),
        stranger=instance(account, "b"),
        foreign=foreign,
        # Everything has come about when moto answers.
        until=lambda condition: condition(),
    )


def never(seconds: float) -> None:
    """For a clock that nobody waits on: nothing is throttled."""
    raise AssertionError(f"it waits for {seconds} s")


def terminate(account: Account, instance_id: str) -> None:
    """The instance ends, as on spot or by its group."""
    _client(account).terminate_instances(InstanceIds=[instance_id])


@cache
def _client(account: Account) -> EC2Client:
    return account.ec2()
