"""The end of a deployment: what the product made is found by tag, shown, and gone after one call."""

from __future__ import annotations

import pytest

from app.domain.access import HostAccess
from app.errors import Conflict, Unavailable
from app.flow import teardown
from infra.fakes.access import FakeLogins, FakeSecrets
from infra.fakes.account import Delays
from infra.fakes.clock import ManualClock
from infra.fakes.cloud import FakeCloud

HOST, ZONE = "i-1", "a"
MINUTE_S = 60


class Account:
    """One volume, one snapshot of it, one host's secret and login."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cloud = FakeCloud(self.clock, {HOST: ZONE}, delays=Delays())
        self.secrets, self.logins = FakeSecrets(), FakeLogins("queue")
        self.volume = self.cloud.create_volume(
            token="t-1", zone=ZONE, size_gib=8, snapshot_id=None, tags={}
        ).volume_id
        self.clock.advance(MINUTE_S)
        self.snapshot = self.cloud.create_snapshot(
            token="t-2", volume_id=self.volume, tags={}
        ).snapshot_id
        self.clock.advance(MINUTE_S)
        self.secrets.put(HOST, HostAccess("database", "queue"))
        self.logins.create(HOST)

    @property
    def made(self) -> teardown.Made:
        return teardown.Made(self.cloud, self.secrets, self.logins)

    def kinds(self) -> list[str]:
        return [each.kind for each in teardown.left(self.made)]


@pytest.fixture
def account() -> Account:
    return Account()


def test_it_shows_all_that_the_product_made_and_touches_nothing(account: Account) -> None:
    found = teardown.left(account.made)
    assert [(each.kind, each.name) for each in found] == [
        ("volume", account.volume),
        ("snapshot", account.snapshot),
        ("secret", HOST),
        ("login", HOST),
    ]
    assert found[0].detail == "8 GiB, available"
    assert teardown.left(account.made) == found


def test_one_call_leaves_nothing_and_so_does_a_second(account: Account) -> None:
    found = teardown.left(account.made)
    for _ in range(2):
        teardown.remove(account.made, found)
        account.clock.advance(MINUTE_S)
        assert account.kinds() == []


def test_while_a_host_has_a_volume_nothing_goes(account: Account) -> None:
    account.cloud.attach(account.volume, HOST, "/dev/sdf")
    with pytest.raises(Conflict, match=account.volume):
        teardown.remove(account.made, teardown.left(account.made))
    assert account.kinds() == ["volume", "snapshot", "secret", "login"]


def test_what_a_failure_leaves_the_next_call_removes(account: Account) -> None:
    account.secrets.faults.before.add("delete")
    found = teardown.left(account.made)
    with pytest.raises(Unavailable):
        teardown.remove(account.made, found)
    account.clock.advance(MINUTE_S)
    assert account.kinds() == ["secret", "login"]
    teardown.remove(account.made, teardown.left(account.made))
    assert account.kinds() == []
