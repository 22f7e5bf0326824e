"""The rehearsal's zone keeps the contract of the cloud account that it stands in for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drills.rehearsal import storage
from drills.rehearsal.zone import REGION, running
from infra.aws.ec2 import Ec2Cloud
from infra.aws.session import Account
from infra.conformance_cloud import (
    CHECKS,
    REFUSALS,
    Check,
    Subject,
    check_what_is_not_ready_is_not_used,
)
from tests.contract.moto_server import credentials, never, subject
from tests.integration.volumes import needs_volumes

pytestmark = needs_volumes

# What is asked for there has come about at once.
KEPT = [check for check in (*CHECKS, *REFUSALS) if check is not check_what_is_not_ready_is_not_used]


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    folder: Path = tmp_path_factory.mktemp("zone")
    with credentials(folder), running(folder / "z") as zone:
        yield Account(REGION, zone.url)
    assert not list(storage.loops(folder))


@pytest.fixture(scope="module")
def clouds(account: Account) -> tuple[Ec2Cloud, Ec2Cloud]:
    return Ec2Cloud(account, "ours", never), Ec2Cloud(account, "theirs", never)


@pytest.fixture
def of_zone(account: Account, clouds: tuple[Ec2Cloud, Ec2Cloud]) -> Iterator[Subject]:
    made = subject(account, clouds[0], "ours", clouds[1])
    yield made
    made.clean_up()


@pytest.mark.parametrize("check", KEPT, ids=lambda check: check.__name__.removeprefix("check_"))
def test_the_zone(of_zone: Subject, check: Check) -> None:
    check(of_zone)
