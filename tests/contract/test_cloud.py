"""The contract of the cloud account: by AWS's API on a moto server, and on the account in memory."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from app.errors import Unavailable
from infra.aws import session
from infra.aws.ec2 import Ec2Cloud
from infra.aws.session import ATTEMPTS, Account
from infra.conformance_cloud import CHECKS, REFUSALS, Check, Subject
from infra.fakes.clock import ManualClock
from infra.fakes.cloud import FakeCloud
from tests.contract.moto_server import (
    REGION,
    empty,
    moto_server,
    never,
    subject,
    terminate,
)

HERE, BESIDE, FAR = ("i-" + str(n) * 17 for n in (1, 2, 3))
FOREIGN = "snap-00000000000000abc"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto_server(tmp_path_factory.mktemp("aws")) as endpoint:
        yield endpoint


@pytest.fixture
def account(server: str) -> Account:
    """An empty one."""
    empty(server)
    return Account(REGION, server)


@pytest.fixture(scope="module")
def clouds(server: str) -> tuple[Ec2Cloud, Ec2Cloud]:
    """Two deployments in one account; a client takes longer to make than all that it is asked here."""
    account = Account(REGION, server)
    return Ec2Cloud(account, "ours", never), Ec2Cloud(account, "theirs", never)


@pytest.fixture
def by_api(account: Account, clouds: tuple[Ec2Cloud, Ec2Cloud]) -> Iterator[Subject]:
    ours, theirs = clouds
    made = subject(account, ours, "ours", theirs)
    yield made
    made.clean_up()


@pytest.fixture
def in_memory() -> Iterator[Subject]:
    clock = ManualClock()
    cloud = FakeCloud(clock, {HERE: "a", BESIDE: "a", FAR: "b"}, deployment="ours")

    def foreign() -> str:
        cloud.plant(FOREIGN)
        return FOREIGN

    def until(condition: Callable[[], bool]) -> bool:
        for _ in range(60):
            if condition():
                return True
            clock.advance(1)
        return False

    made = Subject(cloud, "ours", "a", "b", HERE, BESIDE, FAR, foreign, until)
    yield made
    made.clean_up()


@pytest.mark.parametrize(
    ("ask", "attempts"),
    [
        (lambda cloud: cloud.volumes(), ATTEMPTS),
        # It has no client token: what a lost answer made must not be made again.
        (lambda cloud: cloud.create_snapshot(token="t", volume_id="vol-1", tags={}), 1),
    ],
    ids=["volumes", "create_snapshot"],
)
def test_who_says_nothing_is_asked_a_bounded_number_of_times(
    ask: Callable[[Ec2Cloud], object],
    attempts: int,
    server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert server, "there are credentials"
    monkeypatch.setattr(session, "READ_S", 0.05)
    with socket.create_server(("127.0.0.1", 0), backlog=16) as deaf:
        cloud = Ec2Cloud(Account(REGION, f"http://127.0.0.1:{deaf.getsockname()[1]}"), "d", never)
        with pytest.raises(Unavailable) as away:
            ask(cloud)
        deaf.setblocking(False)
        heard = [deaf.accept()[0] for _ in range(attempts)]
        with pytest.raises(BlockingIOError):
            deaf.accept()
        for connection in heard:
            connection.close()
    assert (away.value.code, away.value.details["error"]) == ("cloud_away", "ReadTimeoutError")


def _name(check: Check) -> str:
    return check.__name__.removeprefix("check_")


@pytest.mark.parametrize("check", CHECKS, ids=_name)
def test_by_api(by_api: Subject, check: Check) -> None:
    check(by_api)


def test_by_api_a_bound_volume_ends_with_its_instance_and_another_does_not(
    by_api: Subject, account: Account
) -> None:
    bound, free = by_api.volume(), by_api.volume()
    for volume, device in ((bound, "/dev/sdf"), (free, "/dev/sdg")):
        by_api.cloud.attach(volume.volume_id, by_api.instance, device)
    by_api.cloud.bind(bound.volume_id, by_api.instance)
    terminate(account, by_api.instance)
    assert by_api.cloud.volume(bound.volume_id) is None
    assert by_api.seen(free.volume_id).attachment is None


@pytest.mark.parametrize("check", [*CHECKS, *REFUSALS], ids=_name)
def test_in_memory(in_memory: Subject, check: Check) -> None:
    check(in_memory)
