"""Which volumes and snapshots nobody owns: every rule with what is just within it and just beyond."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.domain.cloud import (
    TAG_BUNDLE,
    TAG_DEADLINE,
    TAG_TOKEN,
    Attachment,
    AttachmentState,
    CloudSnapshot,
    Purpose,
    Resource,
    ResourceKind,
    SnapshotState,
    Volume,
    VolumeState,
)
from app.domain.cloud_leak import (
    GRACE_NS,
    SILENT_ATTACHED_NS,
    SILENT_FREE_NS,
    UNTOLD_NS,
    Owners,
    leaked,
)
from app.domain.leak import Leak, LeakKind
from app.domain.money import NS_PER_HOUR
from app.domain.rates import StoragePrice

NOW = 1_800_000_000 * 10**9
MADE = NOW - 50 * NS_PER_HOUR
TAGS = {TAG_TOKEN: "tok", TAG_BUNDLE: "build_1", TAG_DEADLINE: str(MADE + NS_PER_HOUR)}
ON_HOST = Attachment("i-1", "/dev/sdf", AttachmentState.ATTACHED)
VOLUME = Volume(
    "vol-1", VolumeState.IN_USE, "zone-a", 8, "snap-1", ON_HOST, TAGS, made_wall_ns=MADE
)
FREE = replace(VOLUME, state=VolumeState.AVAILABLE, attachment=None)
SNAPSHOT = CloudSnapshot("snap-1", SnapshotState.COMPLETED, 8, tags=TAGS, made_wall_ns=MADE)
READ = Resource(
    "tok", ResourceKind.VOLUME, Purpose.READ, "build_1", 8, "i-1", "zone-a", "vol-1", MADE, None, MADE
)  # fmt: skip
KEEP = Resource(
    "tok", ResourceKind.SNAPSHOT, Purpose.KEEP, "build_1", 8, None, None, "snap-1", MADE, None, MADE
)
OTHER_KEEP = replace(KEEP, token="tok_2", cloud_id="snap-2")
PRICE = StoragePrice(80_000, 50_000)
YOUNG = MADE + NS_PER_HOUR + GRACE_NS  # the last moment of what only its tag's deadline protects


def owners(*rows: Resource, **more: object) -> Owners:
    plain: dict[str, object] = {
        "now_ns": NOW,
        "rows": {row.token: row for row in rows},
        "silent_ns": {"i-1": 0},
        "busy": frozenset(),
        "bundles": frozenset({"build_1"}),
        "knows": True,
        "price": PRICE,
    }
    return Owners(**plain | more)  # type: ignore[arg-type]


def found(seen: Volume | CloudSnapshot, by: Owners) -> list[Leak]:
    """The leaks of one resource; rows of others, which are not there, are left out."""
    volumes = [seen] if isinstance(seen, Volume) else []
    snapshots = [seen] if isinstance(seen, CloudSnapshot) else []
    every = leaked(volumes, snapshots, by)
    return [leak for leak in every if leak.kind is not LeakKind.CLOUD_ROW]


UNFINISHED = replace(READ, deadline_ns=NOW - GRACE_NS)
LATE = replace(READ, deadline_ns=NOW - GRACE_NS - 1)
UNHEARD = replace(LATE, cloud_id=None, made_ns=None)
LATE_KEEP = replace(KEEP, deadline_ns=NOW - GRACE_NS - 1)
NOBODYS: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("seen", "by"),
    [
        (VOLUME, owners(READ)),
        (VOLUME, owners(UNFINISHED, silent_ns={})),
        (VOLUME, owners(READ, silent_ns={}, busy=frozenset({"i-1"}))),
        (VOLUME, owners(READ, silent_ns={"i-1": SILENT_ATTACHED_NS})),
        (VOLUME, owners(READ, bundles=NOBODYS)),
        (FREE, owners(READ)),
        (FREE, owners(READ, silent_ns={"i-1": SILENT_FREE_NS})),
        (VOLUME, owners(now_ns=YOUNG)),
        (replace(VOLUME, tags={TAG_TOKEN: "tok"}), owners(now_ns=MADE + UNTOLD_NS + GRACE_NS)),
        (replace(FREE, state=VolumeState.DELETING), owners()),
        (replace(FREE, state=VolumeState.DELETED), owners()),
        (SNAPSHOT, owners(KEEP)),
        (SNAPSHOT, owners(LATE_KEEP)),
        (SNAPSHOT, owners()),
        (SNAPSHOT, owners(now_ns=YOUNG, bundles=NOBODYS)),
        (SNAPSHOT, owners(replace(LATE_KEEP, deadline_ns=NOW - GRACE_NS), bundles=NOBODYS)),
    ],
    ids=[
        *("mounted", "being-made", "its-host-runs-a-machine", "its-host-is-silent-for-a-while"),
        *("a-live-hosts-to-unmount", "free-on-a-live-host", "its-host-is-silent-for-a-moment"),
        *("young-without-a-row", "young-without-a-deadline", "being-deleted", "deleted"),
        *("kept", "the-last-of-a-bundle", "the-last-of-a-bundle-without-a-row"),
        *("young-snapshot", "snapshot-being-made"),
    ],
)
def test_what_has_its_owner_or_may_get_one_is_no_leak(
    seen: Volume | CloudSnapshot, by: Owners
) -> None:
    assert found(seen, by) == []


@pytest.mark.parametrize(
    ("seen", "by", "why"),
    [
        (VOLUME, owners(), "no row knows it"),
        (VOLUME, owners(now_ns=YOUNG + 1), "no row knows it"),
        (VOLUME, owners(replace(READ, cloud_id="vol-2")), "its row has vol-2 instead"),
        (VOLUME, owners(LATE), "not finished by 2027-01-15T07:"),
        (VOLUME, owners(UNHEARD), "not finished by 2027-01-15T07:"),
        (VOLUME, owners(LATE, busy=frozenset({"i-1"})), "not finished by"),
        (VOLUME, owners(READ, silent_ns={"i-1": SILENT_ATTACHED_NS + 1}), "its host i-1 is not"),
        (VOLUME, owners(READ, silent_ns={}), "its host i-1 is not heard of any more"),
        (FREE, owners(READ, silent_ns={"i-1": SILENT_FREE_NS + 1}), "its host i-1 is not heard of"),
        (FREE, owners(READ, bundles=NOBODYS), "its bundle has neither a stored snapshot nor an"),
        (replace(VOLUME, tags={TAG_TOKEN: "tok"}), owners(), "no row knows it"),
        (replace(VOLUME, tags=TAGS | {TAG_DEADLINE: "9" * 40}), owners(), "no row knows it"),
        (replace(VOLUME, tags=TAGS | {TAG_DEADLINE: "soon"}), owners(), "no row knows it"),
        (replace(VOLUME, tags={}), owners(READ), "no row knows it"),
        (SNAPSHOT, owners(bundles=NOBODYS), "no row knows it"),
        (SNAPSHOT, owners(OTHER_KEEP), "no row knows it"),
        (SNAPSHOT, owners(KEEP, bundles=NOBODYS), "its bundle has neither a stored snapshot nor"),
        (SNAPSHOT, owners(LATE_KEEP, bundles=NOBODYS), "not finished by 2027-01-15T07:"),
        (SNAPSHOT, owners(LATE_KEEP, OTHER_KEEP), "not finished by 2027-01-15T07:"),
    ],
)  # fmt: skip
def test_what_nobody_owns_is_a_leak_with_its_reason(
    seen: Volume | CloudSnapshot, by: Owners, why: str
) -> None:
    (leak,) = found(seen, by)
    assert why in leak.detail
    assert (leak.kind, leak.name) == (
        (LeakKind.CLOUD_VOLUME, "vol-1")
        if isinstance(seen, Volume)
        else (LeakKind.CLOUD_SNAPSHOT, "snap-1")
    )


def test_a_leak_says_what_it_costs_and_since_when() -> None:
    (volume,) = found(FREE, owners())
    assert volume.detail == (
        "8 GiB of build_1; no row knows it; 0.64 USD a month since 2027-01-13T06:00:00.000Z"
    )
    assert (volume.micros_per_month, volume.age_ns) == (640_000, 50 * NS_PER_HOUR)
    (snapshot,) = found(SNAPSHOT, owners(bundles=NOBODYS))
    assert snapshot.micros_per_month == 400_000
    (strange,) = found(FREE, owners(knows=False))
    assert strange.detail.endswith(
        "it stays: this database has never known any, so that another may own it"
    )
    (unpriced,) = found(VOLUME, owners(price=None))
    assert unpriced.micros_per_month is None
    assert "USD" not in unpriced.detail


@pytest.mark.parametrize(
    ("by", "there"),
    [
        (owners(silent_ns={"i-1": SILENT_ATTACHED_NS}), True),
        (owners(silent_ns={"i-1": SILENT_ATTACHED_NS + 1}), False),
        (owners(silent_ns={}), False),
        (owners(silent_ns={}, busy=frozenset({"i-1"})), True),
    ],
)
def test_what_may_be_mounted_on_a_host_that_is_there_says_that_it_stays(
    by: Owners, there: bool
) -> None:
    (leak,) = found(VOLUME, by)
    assert (by.holder_of(VOLUME) == "i-1") is there
    assert leak.detail.endswith("it stays while i-1 is there, where it may be mounted") is there
    assert by.holder_of(FREE) is None
    assert by.holder_of(SNAPSHOT) is None


def test_two_looks_at_one_leak_see_the_same_one() -> None:
    by = owners(READ, silent_ns={"i-1": SILENT_ATTACHED_NS + 1})
    later = replace(by, now_ns=NOW + 10**12, silent_ns={"i-1": SILENT_ATTACHED_NS + 10**12})
    assert found(VOLUME, by) == found(VOLUME, later)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (READ, "volume vol-1 of build_1: it is gone from the account"),
        (KEEP, "snapshot snap-1 of build_1: it is gone from the account, and a snapshot that is"),
        (replace(READ, deadline_ns=NOW + NS_PER_HOUR), "volume vol-1 of build_1: it is gone from"),
        (UNHEARD, "volume of build_1: it was never made"),
    ],
)
def test_a_row_whose_resource_is_gone_is_one_too(row: Resource, said: str) -> None:
    (leak,) = leaked((), (), owners(row))
    assert (leak.kind, leak.name) == (LeakKind.CLOUD_ROW, "tok")
    assert leak.detail.startswith(said)
    assert leak.micros_per_month is None


@pytest.mark.parametrize(
    "row",
    [
        replace(READ, made_ns=NOW - GRACE_NS),
        replace(UNHEARD, deadline_ns=NOW - GRACE_NS),
    ],
    ids=["made-a-moment-ago", "being-asked-for"],
)
def test_a_row_whose_resource_may_not_be_listed_yet_is_none(row: Resource) -> None:
    assert leaked((), (), owners(row)) == ()


def test_a_row_has_its_resource_by_id_or_before_it_was_heard_by_token() -> None:
    assert leaked([VOLUME], (), owners(READ)) == ()
    (leak,) = leaked([VOLUME], (), owners(UNHEARD))
    assert leak.kind is LeakKind.CLOUD_VOLUME
    deleted = replace(FREE, state=VolumeState.DELETED)
    (row,) = leaked([deleted], (), owners(READ))
    assert row.kind is LeakKind.CLOUD_ROW
