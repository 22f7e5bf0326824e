"""How a database stands to what somebody remembers of it, and which number an epoch gets."""

from __future__ import annotations

import pytest

from app.domain.deployment import (
    FIRST_EPOCH,
    Course,
    Deployment,
    Seen,
    course,
    next_epoch,
    outvoted,
    seen_of,
)
from app.domain.money import NS_PER_SECOND

ID = "d1"
DAY_NS = 24 * 3600 * NS_PER_SECOND


@pytest.mark.parametrize(
    ("seen", "now", "what"),
    [
        (None, Deployment(ID, 1, 0, 5), Course.ONWARD),
        (Seen(ID, 1, 5), Deployment(ID, 1, 0, 5), Course.ONWARD),
        (Seen(ID, 1, 5), Deployment(ID, 1, 0, 6), Course.ONWARD),
        (Seen(ID, 1, 5), Deployment(ID, 1, 0, 4), Course.WENT_BACK),
        (Seen(ID, 7, 5), Deployment(ID, 1, 0, 9), Course.WENT_BACK),
        (Seen(ID, 1, 5), Deployment(ID, 7, 9, 1), Course.NEW_EPOCH),
        (Seen("d2", 1, 5), Deployment(ID, 7, 9, 1), Course.ANOTHER),
    ],
)
def test_a_database_is_compared_with_what_is_remembered(
    seen: Seen | None, now: Deployment, what: Course
) -> None:
    assert course(seen, now) is what


def test_what_is_remembered_never_becomes_less() -> None:
    before = Seen(ID, 1, 9, 0, ("b1",))
    assert seen_of(Deployment(ID, 1, 0, 7), before, 100) == before
    assert seen_of(Deployment(ID, 1, 0, 11), before, 100) == Seen(ID, 1, 11, 0, ("b1",))
    assert seen_of(Deployment(ID, 5, 0, 2), before, 100, ["b2", "b1"]) == Seen(
        ID, 5, 2, 100, ("b1", "b2")
    )
    assert seen_of(Deployment("d2", 5, 0, 2), before, 100, ["b2"]) == Seen("d2", 5, 2)


def test_bundles_are_spared_for_as_long_as_the_grace() -> None:
    seen = Seen(ID, 5, 2, 100, ("b1",))
    assert seen.spared(50, 149) == {"b1"}
    assert seen.spared(50, 150) == frozenset()
    assert Seen(ID, 1, 2, 0, ("b1",)).spared(DAY_NS, 1) == frozenset()


def test_an_epoch_is_later_than_all_that_anybody_may_remember() -> None:
    now = Deployment(ID, 1000, 0, 5)
    assert next_epoch(now, 5000 * NS_PER_SECOND) == 5000
    assert next_epoch(now, 900 * NS_PER_SECOND) == 1001
    assert next_epoch(now, 5000 * NS_PER_SECOND, [6000, 20]) == 6001


def test_an_epoch_that_cannot_be_is_believed_of_no_host() -> None:
    assert next_epoch(Deployment(ID), 5000 * NS_PER_SECOND, [1 << 62]) == 5000


def test_a_deployment_was_restored_only_in_a_later_epoch() -> None:
    assert not Deployment(ID, FIRST_EPOCH, 0, 5).restored_within(DAY_NS, 1)
    assert Deployment(ID, 7, 100, 5).restored_within(DAY_NS, 100 + DAY_NS - 1)
    assert not Deployment(ID, 7, 100, 5).restored_within(DAY_NS, 100 + DAY_NS)


@pytest.mark.parametrize(
    ("ahead", "of", "stops"), [(0, 0, False), (1, 1, True), (1, 2, False), (2, 3, True)]
)
def test_most_hosts_are_believed_and_one_of_several_is_not(
    ahead: int, of: int, *, stops: bool
) -> None:
    assert outvoted(ahead, of) is stops
