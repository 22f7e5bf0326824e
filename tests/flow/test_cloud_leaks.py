"""What nobody owns in the cloud account is found with what it costs and made away with; the rest is never touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
import structlog

from app.domain.cloud import (
    TAG_BUNDLE,
    TAG_DEADLINE,
    TAG_DEPLOYMENT,
    Purpose,
    Resource,
    ResourceKind,
    Volume,
)
from app.domain.cloud_leak import SILENT_ATTACHED_NS
from app.domain.leak import LeakKind
from app.domain.rates import StoragePrice
from app.domain.snapshot import BuildError, BuildState
from app.errors import CloudRefused, Unavailable
from app.flow import cloud_leaks
from app.ports import Ports
from infra.fakes.account import Trouble
from infra.fakes.cloud import FakeCloud
from tests import builders as a
from tests.flow.stage import Stage, spec
from workers.reaping import Reaper

HOUR_S, GIB = 3600, 8
HOUR_NS = HOUR_S * 10**9
ZONE = "zone-a"


class Plane:
    """Which volumes an instance will not let go of, as if they were mounted."""

    def __init__(self) -> None:
        self.mounted: set[str] = set()

    def made(self, volume: Volume) -> None: ...

    def attached(self, volume_id: str, instance_id: str, device: str) -> None: ...

    def detached(self, volume_id: str, instance_id: str) -> bool:
        return volume_id not in self.mounted

    def snapshotted(self, snapshot_id: str, volume_id: str) -> None: ...

    def deleted(self, cloud_id: str) -> None: ...


@dataclass
class Account:
    """A stage with a bundle that is being built, its cloud account, and a reaper that looks at it."""

    suite: Stage
    plane: Plane = field(default_factory=Plane)
    counted: list[LeakKind] = field(default_factory=list)
    owed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        hosts = {"host0": ZONE, "i-other": ZONE}
        self.cloud = FakeCloud(self.suite.clock, hosts, plane=self.plane, deployment="ours")
        price = StoragePrice(80_000, 50_000)
        self.ports: Ports = replace(
            self.suite.ports,
            cloud=self.cloud,
            rates=replace(self.suite.ports.rates, storage=price),
        )
        rows = self.suite.stores.leaks
        self.reaper = Reaper(
            partial(cloud_leaks.in_account, self.ports, rows),
            partial(cloud_leaks.mend_in_account, self.ports, rows),
            self.counted.append,
            self.owed.append,
        )
        build, run, template = a.build()
        self.ports.builds.start(build, run, template, None)
        self.bundle = build.build_id

    def turns(self, count: int = 2, *, host: bool = True) -> list[LeakKind]:
        """What the reaper counts in so many looks, a minute apart."""
        self.counted.clear()
        for _ in range(count):
            self.suite.clock.advance(60)
            if host:
                self.ports.hosts.heartbeat("host0", ())
            self.reaper.turn()
        return list(self.counted)

    def intend(self, token: str, host: str | None = "host0", bundle: str = "") -> Resource:
        kind = ResourceKind.SNAPSHOT if host is None else ResourceKind.VOLUME
        purpose = Purpose.KEEP if host is None else Purpose.READ
        zone = None if host is None else ZONE
        asked = Resource(token, kind, purpose, bundle or self.bundle, GIB, host, zone)
        return self.ports.resources.intend(asked, HOUR_NS)

    def volume(self, token: str, host: str = "host0", bundle: str = "") -> str:
        """A volume that is attached to its host and settled."""
        row = self.intend(token, host, bundle)
        made = self.create(token, tags_of(row))
        self.ports.resources.made(token, made)
        self.suite.clock.advance(5)
        self.cloud.attach(made, host, f"/dev/sd{made[-1]}")
        self.suite.clock.advance(5)
        self.ports.resources.settle(token)
        return made

    def snapshot(self, token: str, bundle: str = "") -> str:
        """A snapshot that is complete and settled, of a volume that is deleted."""
        row = self.intend(token, None, bundle)
        of = self.create(f"{token}_write", {})
        made = self.cloud.create_snapshot(token=token, volume_id=of, tags=tags_of(row))
        self.cloud.delete_volume(of)
        self.suite.clock.advance(30)
        self.ports.resources.made(token, made.snapshot_id)
        self.ports.resources.settle(token)
        return made.snapshot_id

    def create(self, token: str, tags: Mapping[str, str]) -> str:
        made = self.cloud.create_volume(
            token=token, zone=ZONE, size_gib=GIB, snapshot_id=None, tags=tags
        )
        return made.volume_id

    def there(self) -> set[str]:
        """What the account has: all that is not being deleted."""
        self.suite.clock.advance(5)
        volumes = {each.volume_id for each in self.cloud.volumes()}
        return volumes | {each.snapshot_id for each in self.cloud.snapshots()}

    def noted(self) -> set[str]:
        return {row.token for row in self.ports.resources.living()}


def tags_of(row: Resource) -> dict[str, str]:
    return {TAG_BUNDLE: row.bundle_id, TAG_DEADLINE: str(row.deadline_ns)}


@pytest.fixture
def account(stage: Stage) -> Account:
    return Account(stage)


def test_without_an_account_there_is_nothing_to_look_at(stage: Stage) -> None:
    assert stage.ports.cloud is None
    assert cloud_leaks.in_account(stage.ports, stage.stores.leaks) == frozenset()


def test_what_is_owned_stays_for_ever(account: Account) -> None:
    kept = {account.volume("tok_v"), account.snapshot("tok_s")}
    for _ in range(5):
        account.suite.clock.advance(2 * HOUR_S)
        account.ports.hosts.heartbeat("host0", ())
        assert account.turns(2) == []
    assert account.there() == kept
    assert account.owed == [0] * 10


def test_a_volume_that_no_row_knows_goes_after_its_deadline_with_what_it_cost(
    account: Account,
) -> None:
    kept = account.volume("tok_v")
    deadline_ns = account.ports.clock.wall_ns() + HOUR_NS
    lone = account.create("tok_lone", {TAG_DEADLINE: str(deadline_ns)})
    assert account.turns(60) == []
    assert lone in account.there()
    account.suite.clock.advance(600)
    account.ports.hosts.heartbeat("host0", ())
    with structlog.testing.capture_logs() as logs:
        assert account.turns(2) == [LeakKind.CLOUD_VOLUME]
    (told,) = (line for line in logs if line["event"] == "leak")
    assert (told["name"], told["mended"], told["usd_per_month"]) == (lone, True, 0.64)
    assert "8 GiB; no row knows it; 0.64 USD a month since 2027-" in told["detail"]
    assert account.there() == {kept}
    assert account.turns(3) == []


def test_what_was_never_finished_goes_after_its_deadline_and_its_row_with_it(
    account: Account,
) -> None:
    """Its maker died: once with the answer, once before it was heard."""
    heard, unheard = account.intend("tok_heard"), account.intend("tok_unheard")
    account.ports.resources.made("tok_heard", account.create("tok_heard", tags_of(heard)))
    account.create("tok_unheard", tags_of(unheard))
    account.intend("tok_never")
    assert account.turns(60) == []
    account.suite.clock.advance(600)
    assert account.turns(2) == [LeakKind.CLOUD_VOLUME, LeakKind.CLOUD_VOLUME, LeakKind.CLOUD_ROW]
    assert account.there() == set()
    assert account.noted() == set()


def test_a_dead_hosts_volume_is_detached_and_deleted(account: Account) -> None:
    account.volume("tok_v")
    account.suite.clock.advance(SILENT_ATTACHED_NS / 1e9 - 300)
    assert account.turns(2, host=False) == []
    account.suite.clock.advance(300)
    assert account.turns(2, host=False) == [LeakKind.CLOUD_VOLUME]
    assert "detach" in account.cloud.calls
    assert account.there() == set()
    assert account.noted() == set()


def test_a_silent_host_with_an_open_attempt_keeps_its_volume(suite: Stage) -> None:
    """Its machine may live: law 8 closes the attempt when it cannot any more."""
    account = Account(suite)
    volume = account.volume("tok_v")
    account.suite.start(spec("500s", count=1))
    account.suite.run_for(3)
    account.suite.clock.advance(3 * HOUR_S)
    assert account.turns(3, host=False) == []
    assert account.there() == {volume}


@pytest.mark.parametrize("known", [False, True], ids=["no-row", "never-settled"])
def test_what_is_attached_to_a_host_that_is_there_is_told_and_never_taken_from_it(
    account: Account, known: bool
) -> None:
    """Forks may run on it: rows restored from a backup know nothing of a volume that was mounted since."""
    if known:
        row = account.intend("tok_v")
        volume = account.create("tok_v", tags_of(row))
        account.ports.resources.made("tok_v", volume)
        account.suite.clock.advance(5)
        account.cloud.attach(volume, "host0", "/dev/sdf")
    else:
        volume = account.volume("tok_v")
        account.volume("tok_other")
        account.ports.resources.gone("tok_v")
    account.suite.clock.advance(3 * HOUR_S)
    account.ports.hosts.heartbeat("host0", ())
    with structlog.testing.capture_logs() as logs:
        assert account.turns(4) == [LeakKind.CLOUD_VOLUME]
    (told,) = (line for line in logs if line["event"] == "leak")
    assert (told["name"], told["mended"]) == (volume, False)
    assert told["detail"].endswith("it stays while host0 is there, where it may be mounted")
    assert volume in account.there()
    assert "detach" not in account.cloud.calls
    account.suite.clock.advance(SILENT_ATTACHED_NS / 1e9 + 60)
    account.turns(2, host=False)
    assert volume not in account.there()


def test_a_terminated_instance_leaves_rows_or_free_volumes(account: Account) -> None:
    bound, free = account.volume("tok_bound"), account.volume("tok_free")
    account.cloud.bind(bound, "host0")
    account.cloud.terminate("host0")
    account.suite.clock.advance(1200)
    assert account.turns(3, host=False) == [LeakKind.CLOUD_VOLUME, LeakKind.CLOUD_ROW]
    assert free not in account.there()
    assert account.noted() == set()


def test_a_volume_that_is_still_mounted_is_told_with_its_cost_until_it_lets_go(
    account: Account,
) -> None:
    mounted = account.volume("tok_v")
    account.plane.mounted.add(mounted)
    account.suite.clock.advance(2 * HOUR_S)
    with structlog.testing.capture_logs() as logs:
        assert account.turns(4, host=False) == [LeakKind.CLOUD_VOLUME]
    assert [line["mended"] for line in logs if line["event"] == "leak"] == [False]
    assert account.owed == [0, 640_000, 640_000, 640_000]
    assert account.noted() == {"tok_v"}
    account.plane.mounted.clear()
    account.turns(1, host=False)
    assert account.owed[-1] == 0
    assert account.there() == set()
    assert account.noted() == set()


def test_a_snapshot_goes_with_its_bundle_and_not_before(account: Account) -> None:
    kept, lone = account.snapshot("tok_kept"), account.snapshot("tok_lone", "build_gone")
    assert account.turns(2) == [LeakKind.CLOUD_SNAPSHOT]
    assert account.there() == {kept}
    assert account.noted() == {"tok_kept"}
    assert lone not in account.there()
    refused = BuildError("own_test_failed", "", check="own_test")
    assert account.ports.builds.refuse(account.bundle, BuildState.REFUSED, refused)
    assert account.turns(2) == [LeakKind.CLOUD_SNAPSHOT]
    assert account.there() == set()


def test_the_last_snapshot_of_a_bundle_stays_whatever_its_row_says(account: Account) -> None:
    """It was never settled; without the bundle's rows nobody could say that it is not the one that is restored."""
    row = account.intend("tok_s", None)
    of = account.create("tok_w", {TAG_DEADLINE: "0"})
    last = account.cloud.create_snapshot(token="tok_s", volume_id=of, tags=tags_of(row))
    account.suite.clock.advance(10 * HOUR_S)
    account.turns(3)
    assert account.there() == {last.snapshot_id}


def test_a_snapshot_from_before_a_restore_is_told_and_left_for_a_week(account: Account) -> None:
    """Its row, and all else of it, was committed after the backup; what is made later is as mortal as ever."""
    account.snapshot("tok_known")
    before = account.snapshot("tok_lost", "build_lost")
    account.ports.resources.gone("tok_lost")
    account.suite.clock.advance(2 * HOUR_S)
    account.ports.deployments.begin_epoch()
    account.suite.clock.advance(HOUR_S)
    after = account.snapshot("tok_later", "build_gone")
    assert account.turns(3) == [LeakKind.CLOUD_SNAPSHOT] * 2
    there = account.there()
    assert before in there
    assert after not in there
    assert account.owed[-1] > 0
    account.suite.clock.advance(8 * 24 * HOUR_S)
    account.turns(2)
    assert before not in account.there()


def test_another_deployments_is_never_touched(account: Account) -> None:
    held = account.cloud._held
    theirs = account.create("tok_theirs", {TAG_DEADLINE: "0"})
    held.volumes[theirs].tags[TAG_DEPLOYMENT] = "theirs"
    account.cloud.plant("snap-operators-own")
    account.volume("tok_v")
    account.suite.clock.advance(100 * HOUR_S)
    account.ports.hosts.heartbeat("host0", ())
    assert account.turns(3) == []
    assert theirs in held.volumes
    assert "snap-operators-own" in held.snapshots


def test_a_database_that_never_knew_any_tells_and_deletes_none(account: Account) -> None:
    """The tag is ours, the rows are another's: a wrong `database_url` must not empty the account."""
    lone = account.create("tok_lone", {TAG_DEADLINE: "0"})
    assert account.turns(3) == [LeakKind.CLOUD_VOLUME]
    assert account.there() == {lone}
    assert account.owed[-1] == 640_000


def test_who_found_an_owner_between_look_and_mending_stays(account: Account) -> None:
    row = account.intend("tok_v")
    volume = account.create("tok_v", tags_of(row))
    account.ports.resources.made("tok_v", volume)
    account.suite.clock.advance(HOUR_S + 700)
    (leak,) = cloud_leaks.in_account(account.ports, account.suite.stores.leaks)
    account.ports.resources.settle("tok_v")
    account.ports.hosts.heartbeat("host0", ())
    assert not cloud_leaks.mend_in_account(account.ports, account.suite.stores.leaks, leak)
    assert account.there() == {volume}


def test_a_row_whose_volume_is_lost_behind_our_back_is_marked(account: Account) -> None:
    account.cloud.lose(account.volume("tok_v"))
    assert account.turns(5) == []
    account.suite.clock.advance(600)
    assert account.turns(2) == [LeakKind.CLOUD_ROW]
    assert account.noted() == set()


def test_a_listing_that_lags_behind_marks_no_row(account: Account) -> None:
    """Two lists without it, and the one question for it alone has it."""
    volume = account.volume("tok_v")
    account.suite.clock.advance(700)
    account.ports.hosts.heartbeat("host0", ())
    with pytest.MonkeyPatch.context() as lagging:
        lagging.setattr(account.cloud, "volumes", tuple)
        assert account.turns(2) == [LeakKind.CLOUD_ROW]
    assert account.noted() == {"tok_v"}
    assert account.there() == {volume}


def test_an_account_that_is_not_to_be_seen_loses_nothing(account: Account) -> None:
    volume = account.volume("tok_v")
    account.cloud.rules.denied = {"volumes"}
    with pytest.raises(CloudRefused):
        account.turns(1)
    account.cloud.rules.denied = set()
    account.cloud.fail_at(2, Trouble.THROTTLED)
    with pytest.raises(Unavailable):
        account.turns(1)
    assert account.there() == {volume}


@pytest.mark.parametrize("verb", ["delete_volume", "detach"])
def test_a_leak_that_the_role_may_not_remove_is_told_and_goes_later(
    account: Account, verb: str
) -> None:
    volume = account.volume("tok_v")
    account.suite.clock.advance(2 * HOUR_S)
    account.cloud.rules.denied = {verb}
    assert account.turns(3, host=False) == [LeakKind.CLOUD_VOLUME]
    assert account.there() == {volume}
    assert account.owed[-1] == 640_000
    account.cloud.rules.denied = set()
    account.turns(1, host=False)
    assert account.there() == set()
    assert account.noted() == set()
