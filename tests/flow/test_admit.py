"""Hosts let in and shut out, whatever fails between the two stores and the secret."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from app.domain.access import HostAccess
from app.errors import BadRequest, Unavailable
from app.flow import admit
from app.ports.access import Access
from infra.fakes.access import FakeLogins, FakeSecrets, Faults
from infra.fakes.clock import ManualClock
from infra.fakes.fleet import LAUNCH_S, LEAVE_S, FakeFleet

HOST = "i-1"
VERBS = [
    (store, verb, when)
    for store, verb in (("database", "create"), ("queue", "create"), ("secrets", "put"))
    for when in ("before", "after")
]


@dataclass
class Stores:
    journal: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.database = FakeLogins("database", Faults(), self.journal)
        self.queue = FakeLogins("queue", Faults(), self.journal)
        self.secrets = FakeSecrets(Faults(), self.journal)
        self.access = Access(self.database, self.queue, self.secrets, self._settle)
        self.settled = 0

    def _settle(self) -> None:
        self.settled += 1

    def fail(self, store: str, verb: str, when: str) -> None:
        faults: Faults = getattr(self, store).faults
        getattr(faults, when).add(verb)

    def works_for(self, host_id: str) -> bool:
        """Whether what the host finds lets it in everywhere."""
        found = self.secrets.read(host_id)
        return (
            found is not None
            and self.database.opens(found.database_url)
            and self.queue.opens(found.redis_url)
        )


@pytest.fixture
def stores() -> Stores:
    return Stores()


def test_a_host_is_let_in_and_its_secret_comes_last(stores: Stores) -> None:
    made = admit.admit(stores.access, HOST)

    assert stores.secrets.read(HOST) == made
    assert stores.works_for(HOST)
    assert stores.journal == [
        f"database create {HOST}",
        f"queue create {HOST}",
        f"secrets put {HOST}",
    ]


def test_without_a_place_for_secrets_whoever_asks_has_it() -> None:
    database, queue = FakeLogins("database"), FakeLogins("queue")

    made = admit.admit(Access(database, queue), HOST)

    assert database.opens(made.database_url)
    assert queue.opens(made.redis_url)
    admit.expel(Access(database, queue), HOST)
    assert not admit.known(Access(database, queue))


def test_letting_in_again_changes_the_passwords(stores: Stores) -> None:
    before = admit.admit(stores.access, HOST)
    after = admit.admit(stores.access, HOST)

    assert not stores.database.opens(before.database_url)
    assert not stores.queue.opens(before.redis_url)
    assert stores.secrets.read(HOST) == after
    assert stores.works_for(HOST)


@pytest.mark.parametrize(("store", "verb", "when"), VERBS)
def test_of_a_host_that_could_not_be_let_in_nothing_is_left(
    stores: Stores, store: str, verb: str, when: str
) -> None:
    stores.fail(store, verb, when)

    with pytest.raises(Unavailable):
        admit.admit(stores.access, HOST)

    assert admit.known(stores.access) == frozenset()
    admit.admit(stores.access, HOST)
    assert stores.works_for(HOST)


@pytest.mark.parametrize(("store", "verb", "when"), VERBS)
def test_a_secret_never_outlives_its_passwords(
    stores: Stores, store: str, verb: str, when: str
) -> None:
    """A host that is in is let in anew, and that fails: it has no secret, or one that works."""
    admit.admit(stores.access, HOST)
    stores.fail(store, verb, when)

    with pytest.raises(Unavailable):
        admit.admit(stores.access, HOST)

    assert stores.secrets.read(HOST) is None or stores.works_for(HOST)
    assert HOST in admit.known(stores.access)


def test_who_is_shut_out_loses_its_logins_before_its_secret(stores: Stores) -> None:
    made = admit.admit(stores.access, HOST)
    stores.journal.clear()

    admit.expel(stores.access, HOST)
    admit.expel(stores.access, HOST)

    assert stores.journal[:3] == [
        f"database remove {HOST}",
        f"queue remove {HOST}",
        f"secrets delete {HOST}",
    ]
    assert not stores.database.opens(made.database_url)
    assert not stores.queue.opens(made.redis_url)
    assert admit.known(stores.access) == frozenset()


@pytest.mark.parametrize(
    ("store", "verb"), [("database", "remove"), ("queue", "remove"), ("secrets", "delete")]
)
def test_one_store_that_is_away_keeps_a_host_in_nowhere_else(
    stores: Stores, store: str, verb: str
) -> None:
    admit.admit(stores.access, HOST)
    stores.fail(store, verb, "before")

    with pytest.raises(Unavailable):
        admit.expel(stores.access, HOST)

    left = {
        name
        for name, listed in (
            ("database", stores.database.list()),
            ("queue", stores.queue.list()),
            ("secrets", stores.secrets.list()),
        )
        if listed
    }
    assert left == {store}
    admit.expel(stores.access, HOST)
    assert admit.known(stores.access) == frozenset()


def test_a_name_that_is_none_reaches_no_store(stores: Stores) -> None:
    for act in (admit.admit, admit.expel):
        with pytest.raises(BadRequest):
            act(stores.access, "host *")
    assert stores.journal == []


def _clocked() -> tuple[ManualClock, FakeFleet]:
    clock = ManualClock()
    fleet = FakeFleet(clock, most=10, desired=2)
    fleet.state()
    return clock, fleet


def test_instances_are_let_in_as_they_come_and_shut_out_when_they_have_ended(
    stores: Stores,
) -> None:
    clock, fleet = _clocked()
    names = [each.instance_id for each in fleet.state().instances]

    # They are let in while they boot, and are once.
    first = admit.turn(stores.access, fleet)
    assert sorted(first.admitted) == sorted(names)
    assert admit.turn(stores.access, fleet).admitted == ()
    assert all(map(stores.works_for, names))
    assert stores.settled == 2
    clock.advance(LAUNCH_S)
    fleet.retire(names[0])
    # On its way out it may still have something to say.
    assert admit.turn(stores.access, fleet).expelled == ()
    clock.advance(LEAVE_S)
    assert admit.turn(stores.access, fleet).expelled == (names[0],)
    assert admit.known(stores.access) == {names[1]}


@pytest.mark.parametrize(("store", "verb", "when"), VERBS)
def test_a_turn_goes_on_with_what_the_one_before_left(
    stores: Stores, store: str, verb: str, when: str
) -> None:
    _, fleet = _clocked()
    names = [each.instance_id for each in fleet.state().instances]
    stores.fail(store, verb, when)

    moved = admit.turn(stores.access, fleet)

    assert [host for host, _ in moved.failures] == [min(names)]
    assert moved.admitted == (max(names),)
    assert admit.turn(stores.access, fleet).admitted == (min(names),)
    assert all(map(stores.works_for, names))


@pytest.mark.parametrize("crash_after", range(3))
def test_who_died_between_two_stores_is_followed_by_another(
    stores: Stores, crash_after: int
) -> None:
    _, fleet = _clocked()
    name = min(each.instance_id for each in fleet.state().instances)
    steps: list[Callable[[], object]] = [
        lambda: stores.database.create(name),
        lambda: stores.queue.create(name),
        lambda: stores.secrets.put(name, HostAccess("stale", "stale")),
    ]
    for step in steps[:crash_after]:
        step()

    admit.turn(stores.access, fleet)

    assert stores.works_for(name)


def test_nobody_is_shut_out_because_a_list_could_not_be_read(stores: Stores) -> None:
    _, fleet = _clocked()
    admit.turn(stores.access, fleet)
    before = admit.known(stores.access)
    fleet.away = True

    with suppress(Unavailable):
        admit.turn(stores.access, fleet)

    fleet.away = False
    assert admit.known(stores.access) == before


def test_many_that_come_at_once_are_let_in_within_some_turns(stores: Stores) -> None:
    fleet = FakeFleet(ManualClock(), most=50, desired=admit.MOST_AT_ONCE + 5)

    counts = [len(admit.turn(stores.access, fleet).admitted) for _ in range(3)]

    assert counts == [admit.MOST_AT_ONCE, 5, 0]
