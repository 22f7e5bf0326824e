"""Which volumes and snapshots of the cloud account nobody owns any more, why, and what each costs while it is there.

Only what carries this deployment's tag is ever looked at. A resource is owned

- by its maker, until the deadline of its row, or of its tag where no row knows it;
- after that, if its row is settled: a volume by its host, a snapshot by its bundle's stored snapshot or unfinished
  build.

Of a bundle that has its owner the last snapshot is no leak, whatever became of its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.domain.cloud import (
    TAG_BUNDLE,
    TAG_DEADLINE,
    TAG_TOKEN,
    CloudSnapshot,
    Purpose,
    Resource,
    ResourceKind,
    Volume,
    VolumeState,
)
from app.domain.instant import instant
from app.domain.leak import Leak, LeakKind
from app.domain.money import NS_PER_HOUR, NS_PER_SECOND, usd_text
from app.domain.rates import StoragePrice

# What the database's clock and a maker's last call may differ by, and what a listing may lag behind.
GRACE_NS = 600 * NS_PER_SECOND
# Of what bears no deadline that can be read: made by nobody of ours, or tagged over since.
UNTOLD_NS = 2 * NS_PER_HOUR
# A volume that is attached nowhere is nobody's once its host is silent; one that is attached may still be mounted on a
# machine whose network came apart, and waits for longer.
SILENT_FREE_NS = 600 * NS_PER_SECOND
SILENT_ATTACHED_NS = NS_PER_HOUR

_OVER = frozenset({VolumeState.DELETING, VolumeState.DELETED})


@dataclass(frozen=True, slots=True)
class Owners:
    """What stood in the rows after the cloud was listed.

    `rows` are those that are not gone, by their tokens. `silent_ns` has every host that was heard of in the last day,
    `busy` those with an open attempt. `bundles` are owned by a stored snapshot or an unfinished build. `knows`: this
    database has had rows of resources at all; one that never had any may be another deployment's. `restored_ns`: it was
    restored then, so lately that a snapshot from before may be of a row that it has lost.
    """

    now_ns: int
    rows: Mapping[str, Resource]
    silent_ns: Mapping[str, int]
    busy: frozenset[str]
    bundles: frozenset[str]
    knows: bool
    price: StoragePrice | None
    restored_ns: int | None = None

    def row_of(self, seen: Volume | CloudSnapshot) -> Resource | None:
        """The row that made it; None also where that row has another one."""
        row = self.rows.get(seen.tags.get(TAG_TOKEN, ""))
        return row if row is not None and row.cloud_id in (None, _id_of(seen)) else None

    def spares(self, seen: Volume | CloudSnapshot) -> bool:
        """Whether it is a snapshot from before the database was restored. By the cloud's clock and the database's."""
        if self.restored_ns is None or isinstance(seen, Volume):
            return False
        return seen.made_wall_ns < self.restored_ns + GRACE_NS

    def holder_of(self, seen: Volume | CloudSnapshot) -> str | None:
        """The host that a volume is attached to, while that is there or may run machines: it may be mounted under them,
        whatever the rows say (after a restore from a backup they know nothing of it), and to let go of it is its
        host's.
        """
        at = seen.attachment if isinstance(seen, Volume) else None
        if at is None:
            return None
        silent_ns = self.silent_ns.get(at.instance_id, SILENT_ATTACHED_NS + 1)
        there = silent_ns <= SILENT_ATTACHED_NS or at.instance_id in self.busy
        return at.instance_id if there else None


def leaked(
    volumes: Sequence[Volume], snapshots: Sequence[CloudSnapshot], owners: Owners
) -> tuple[Leak, ...]:
    """All of them that nobody owns, and the rows whose resource is gone."""
    seen: list[Volume | CloudSnapshot] = [*volumes, *snapshots]
    return (
        *(leak for each in seen if (leak := resource_leak(each, owners)) is not None),
        *_vanished(seen, owners),
    )


def resource_leak(seen: Volume | CloudSnapshot, owners: Owners) -> Leak | None:
    """What is wrong with one; None if it has its owner, or may get one."""
    why = _volume(seen, owners) if isinstance(seen, Volume) else _snapshot(seen, owners)
    if why is None:
        return None
    kind, of = _kind_of(seen), seen.tags.get(TAG_BUNDLE)
    micros = None
    if owners.price is not None:
        micros = owners.price.micros_per_month(kind, seen.size_gib)
    said = [f"{seen.size_gib} GiB" + (f" of {of}" if of else ""), why]
    if micros is not None:
        said.append(f"{usd_text(micros)} USD a month since {instant(seen.made_wall_ns)}")
    if not owners.knows:
        said.append("it stays: this database has never known any, so that another may own it")
    if owners.spares(seen):
        said.append("it stays for now: the database was restored since, and may have known it")
    holder = owners.holder_of(seen)
    if holder is not None:
        said.append(f"it stays while {holder} is there, where it may be mounted")
    age_ns = max(0, owners.now_ns - seen.made_wall_ns)
    return Leak(_LEAKS[kind], _id_of(seen), "; ".join(said), age_ns, micros)


def _volume(volume: Volume, owners: Owners) -> str | None:
    if volume.state in _OVER:
        return None
    row = owners.row_of(volume)
    if row is None or row.deadline_ns is not None:
        return _without_owner(volume, row, owners)
    if row.host_id in owners.busy:
        return None
    silent_ns = owners.silent_ns.get(row.host_id or "")
    bound = volume.attachment is not None
    if silent_ns is None or silent_ns > (SILENT_ATTACHED_NS if bound else SILENT_FREE_NS):
        return f"its host {row.host_id} is not heard of any more"
    # What is attached to a host that is there is that host's to unmount.
    return None if bound else _without_bundle(row, owners)


def _snapshot(snapshot: CloudSnapshot, owners: Owners) -> str | None:
    row = owners.row_of(snapshot)
    if row is not None and row.deadline_ns is None:
        return _without_bundle(row, owners)
    of = snapshot.tags.get(TAG_BUNDLE, "") if row is None else row.bundle_id
    if of in owners.bundles and not _is_kept(of, owners):
        return None
    return _without_owner(snapshot, row, owners)


def _is_kept(bundle_id: str, owners: Owners) -> bool:
    """Whether a snapshot of it is finished and noted as that."""
    return any(
        row.bundle_id == bundle_id and row.purpose is Purpose.KEEP and row.deadline_ns is None
        for row in owners.rows.values()
    )


def _without_owner(
    seen: Volume | CloudSnapshot, row: Resource | None, owners: Owners
) -> str | None:
    """It is its maker's until the deadline."""
    if row is not None and row.deadline_ns is not None:
        late = owners.now_ns > row.deadline_ns + GRACE_NS
        return f"not finished by {instant(row.deadline_ns)}" if late else None
    if owners.now_ns <= _told_deadline_ns(seen) + GRACE_NS:
        return None
    other = owners.rows.get(seen.tags.get(TAG_TOKEN, ""))
    return "no row knows it" if other is None else f"its row has {other.cloud_id} instead"


def _without_bundle(row: Resource, owners: Owners) -> str | None:
    if row.bundle_id in owners.bundles:
        return None
    return "its bundle has neither a stored snapshot nor an unfinished build"


def _told_deadline_ns(seen: Volume | CloudSnapshot) -> int:
    """By its tag, which may be anything; at the latest when it is two hours old, if it tells none."""
    told = seen.tags.get(TAG_DEADLINE, "")
    return int(told) if told.isdecimal() and len(told) < 20 else seen.made_wall_ns + UNTOLD_NS


def _vanished(seen: Sequence[Volume | CloudSnapshot], owners: Owners) -> Iterator[Leak]:
    there = {_id_of(each) for each in seen if not _is_over(each)}
    tokens = {each.tags.get(TAG_TOKEN) for each in seen if not _is_over(each)}
    for row in owners.rows.values():
        what = f"{row.kind.value} {row.cloud_id} of {row.bundle_id}"
        if row.cloud_id is None:
            due_ns = (row.deadline_ns or row.intended_ns) + GRACE_NS
            if row.token not in tokens and owners.now_ns > due_ns:
                what = f"{row.kind.value} of {row.bundle_id}"
                yield Leak(LeakKind.CLOUD_ROW, row.token, f"{what}: it was never made")
        elif row.cloud_id not in there and owners.now_ns > (row.made_ns or 0) + GRACE_NS:
            # Who is asked for this snapshot from now on has snapshot_unavailable to tell: here is why.
            lost = row.purpose is Purpose.KEEP and row.bundle_id in owners.bundles
            so = ", and a snapshot that is stored is lost with it" if lost else ""
            yield Leak(LeakKind.CLOUD_ROW, row.token, f"{what}: it is gone from the account{so}")


def _is_over(seen: Volume | CloudSnapshot) -> bool:
    return isinstance(seen, Volume) and seen.state in _OVER


def _id_of(seen: Volume | CloudSnapshot) -> str:
    return seen.volume_id if isinstance(seen, Volume) else seen.snapshot_id


def _kind_of(seen: Volume | CloudSnapshot) -> ResourceKind:
    return ResourceKind.VOLUME if isinstance(seen, Volume) else ResourceKind.SNAPSHOT


_LEAKS = {
    ResourceKind.VOLUME: LeakKind.CLOUD_VOLUME,
    ResourceKind.SNAPSHOT: LeakKind.CLOUD_SNAPSHOT,
}
