"""The contract of the fleet: an Auto Scaling group by AWS's API on a moto server, and the group in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.errors import CloudRefused, Unavailable
from infra.aws.fleet import AutoScalingFleet
from infra.aws.session import Account
from infra.conformance_fleet import CHECKS, DESIRED, LEAST, MOST, Check, Subject
from infra.fakes.clock import ManualClock
from infra.fakes.fleet import LAUNCH_S, FakeFleet
from tests.contract.moto_server import REGION, empty, moto_server

GROUP, ZONE = "promigence", "us-east-1a"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto_server(tmp_path_factory.mktemp("aws")) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def account(server: str) -> Account:
    return Account(REGION, server)


@pytest.fixture(scope="module")
def group(account: Account) -> AutoScalingFleet:
    """A client takes longer to make than all that it is asked here."""
    return AutoScalingFleet(account, GROUP)


@pytest.fixture
def by_api(server: str, account: Account, group: AutoScalingFleet) -> Subject:
    empty(server)
    image = account.ec2().register_image(Name="base", RootDeviceName="/dev/xvda")["ImageId"]
    made = account.ec2().create_launch_template(
        LaunchTemplateName="host",
        LaunchTemplateData={"ImageId": image, "InstanceType": "m5.large"},
    )
    account.autoscaling().create_auto_scaling_group(
        AutoScalingGroupName=GROUP,
        LaunchTemplate={
            "LaunchTemplateId": made["LaunchTemplate"]["LaunchTemplateId"],
            "Version": "$Latest",
        },
        MinSize=LEAST,
        MaxSize=MOST,
        DesiredCapacity=DESIRED,
        AvailabilityZones=[ZONE],
    )
    # Everything has come about when moto answers.
    return Subject(group, lambda: None)


@pytest.fixture
def in_memory() -> Subject:
    clock = ManualClock()
    fleet = FakeFleet(clock, least=LEAST, most=MOST, desired=DESIRED)
    return Subject(fleet, lambda: clock.advance(LAUNCH_S))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_group_in_memory_keeps_the_contract(check: Check, in_memory: Subject) -> None:
    check(in_memory)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_an_auto_scaling_group_keeps_the_contract(check: Check, by_api: Subject) -> None:
    check(by_api)


def test_a_group_that_is_not_there_is_named(server: str, account: Account) -> None:
    empty(server)
    with pytest.raises(CloudRefused, match="there is no Auto Scaling group gone") as refused:
        AutoScalingFleet(account, "gone").state()
    assert refused.value.code == "refused"


def test_a_cloud_that_is_away_is_no_empty_fleet() -> None:
    fleet = FakeFleet(ManualClock(), away=True)
    for act in (fleet.state, lambda: fleet.desire(1), lambda: fleet.retire("i-1")):
        with pytest.raises(Unavailable):
            act()
    assert fleet.desired == 0
