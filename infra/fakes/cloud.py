"""A cloud account in memory, on a clock that is given: volumes and snapshots with the states, conflicts and refusals
that AWS has and a mock of its API lets through.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from app.domain.cloud import TAG_DEPLOYMENT, TAG_TOKEN, CloudSnapshot, Volume
from app.errors import CloudRefused, Unavailable
from app.ports.world import Clock
from infra.fakes.account import (
    ACCOUNT,
    ATTACHMENTS_MAX,
    At,
    DataPlane,
    Delays,
    Died,
    HeldSnapshot,
    HeldVolume,
    Holdings,
    Key,
    Trouble,
    show_snapshot,
    show_volume,
)

SECOND_NS = 1_000_000_000
MIB, GIB = 1 << 20, 1 << 30
# AWS refuses a token that comes again with other arguments, or whose volume is gone, under these names.
_MISMATCH, _USED_UP = "IdempotentParameterMismatch", "InvalidParameterValue"

_AnyHeld = TypeVar("_AnyHeld", HeldVolume, HeldSnapshot)


@dataclass(slots=True)
class Rules:
    """What the account allows and does; a test turns these. `lazy_rate_mib`: how fast a volume made from a snapshot has
    its bytes. `never_attaches`, `snapshots_fail`: those begun from now on. `key`: that of new, empty volumes.
    """

    volumes_max: int = 10_000
    attachments_max: int = ATTACHMENTS_MAX
    lazy_rate_mib: float = 300.0
    never_attaches: bool = False
    snapshots_fail: bool = False
    key: Key = Key.ALLOWED
    denied: set[str] = field(default_factory=set)


class FakeCloud:
    """The `Cloud` port. `instances` are the hosts and their zones. Several threads may be hosts of it at once.

    `fail_at` lets one call fail; `calls` are the verbs that were asked for, in order. Where the clock is moved by its
    readers alone, everything that happens is the same each time.
    """

    def __init__(
        self,
        clock: Clock,
        instances: Mapping[str, str],
        *,
        plane: DataPlane | None = None,
        delays: Delays | None = None,
        deployment: str = "fake",
        region: str = "fake-1",
        first_id: int = 1,
    ) -> None:
        self._clock = clock
        self._instances = dict(instances)
        self._delays = delays or Delays()
        self._deployment = deployment
        self._region = region
        self._held = Holdings(plane)
        self._tokens: dict[str, tuple[object, str]] = {}
        self._troubles: dict[int, Trouble] = {}
        self._next_of: dict[str, Trouble] = {}
        self._next_id = first_id
        self._lock = threading.RLock()
        self.calls: list[str] = []
        self.rules = Rules()

    # What a test does to the account.

    def fail_at(self, n: int, how: Trouble, times: int = 1) -> None:
        """Let the `n`-th call from now (1: the next) fail, and those that follow it, `times` in all."""
        first = len(self.calls) + n
        self._troubles.update(dict.fromkeys(range(first, first + times), how))

    def fail_next(self, verb: str, how: Trouble) -> None:
        """Let the next call of one verb fail."""
        self._next_of[verb] = how

    def heal(self) -> None:
        """No call that was to fail does."""
        self._troubles.clear()
        self._next_of.clear()

    def plant(
        self,
        snapshot_id: str,
        *,
        size_gib: int = 1,
        owner_id: str = ACCOUNT,
        shared: bool = True,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """A snapshot that somebody else made, complete."""
        now = self._clock.boot_ns()
        self._held.snapshots[snapshot_id] = HeldSnapshot(
            snapshot_id, "vol-ffffffff", size_gib, dict(tags or {}), now, now, owner_id, shared
        )

    def withhold_key(self, snapshot_id: str, how: Key) -> None:
        """From now on the host may not use the key that a snapshot is encrypted with."""
        self._held.snapshots[snapshot_id].key = how

    def give_away(self, snapshot_id: str, owner_id: str, *, shared: bool) -> None:
        """From now on a snapshot is of another account."""
        snapshot = self._held.snapshots[snapshot_id]
        snapshot.owner_id, snapshot.shared = owner_id, shared

    def hold_device(self, instance_id: str, device: str) -> None:
        """Something that is nobody's of ours is attached there."""
        now = self._clock.boot_ns()
        volume_id, zone = self._new_id("vol"), self._instances[instance_id]
        other = HeldVolume(volume_id, zone, 1, None, {}, now, now)
        other.at = At(instance_id, device, now, there=True)
        self._held.volumes[volume_id] = other

    def lose(self, cloud_id: str) -> None:
        """Somebody deletes a volume or a snapshot behind our back, however it is used."""
        with self._lock:
            self._held.drop(cloud_id)

    def terminate(self, instance_id: str) -> None:
        """An instance is gone: its bound volumes with it, the others are free."""
        with self._lock:
            self._come_true()
            del self._instances[instance_id]
            for volume in list(self._held.volumes.values()):
                if volume.at is None or volume.at.instance_id != instance_id:
                    continue
                if volume.at.bound:
                    self.lose(volume.volume_id)
                volume.at = None

    def loaded_bytes(self, volume_id: str) -> int:
        """How much of a volume is there by now, and not still with its snapshot."""
        volume = self._held.volumes[volume_id]
        if volume.snapshot_id is None:
            return volume.size_gib * GIB
        seconds = max(0, self._clock.boot_ns() - volume.ready_ns) / SECOND_NS
        return min(volume.size_gib * GIB, int(seconds * self.rules.lazy_rate_mib * MIB))

    # The port.

    def create_volume(
        self,
        *,
        token: str,
        zone: str,
        size_gib: int,
        snapshot_id: str | None,
        tags: Mapping[str, str],
    ) -> Volume:
        with self._call("create_volume"):
            asked = (zone, size_gib, snapshot_id, tuple(sorted(tags.items())))
            if token in self._tokens:
                return self._of_token(token, asked)
            key = self._check_volume(zone, size_gib, snapshot_id)
            now = self._clock.boot_ns()
            made = HeldVolume(
                self._new_id("vol"),
                zone,
                size_gib,
                snapshot_id,
                self._tagged(token, tags),
                now,
                _after(now, self._delays.creating_s),
                key,
            )
            self._held.volumes[made.volume_id] = made
            self._tokens[token] = (asked, made.volume_id)
            shown = self._show(made)
            if self._held.plane is not None:
                self._held.plane.made(shown)
            return shown

    def create_snapshot(
        self, *, token: str, volume_id: str, tags: Mapping[str, str]
    ) -> CloudSnapshot:
        with self._call("create_snapshot"):
            volume = self._volume(volume_id)
            now = self._clock.boot_ns()
            made = HeldSnapshot(
                self._new_id("snap"),
                volume_id,
                volume.size_gib,
                self._tagged(token, tags),
                now,
                _after(now, self._delays.snapshot_s),
                fails=self.rules.snapshots_fail,
            )
            self._held.snapshots[made.snapshot_id] = made
            if self._held.plane is not None:
                self._held.plane.snapshotted(made.snapshot_id, volume_id)
            return self._show_snapshot(made)

    def attach(self, volume_id: str, instance_id: str, device: str) -> None:
        with self._call("attach"):
            volume = self._volume(volume_id)
            at = volume.at
            if at is not None and at.instance_id == instance_id and at.leaving_ns is None:
                return
            self._check_attach(volume, instance_id, device)
            ready_ns = _after(self._clock.boot_ns(), self._delays.attaching_s)
            volume.at = At(instance_id, device, ready_ns)

    def bind(self, volume_id: str, instance_id: str) -> None:
        with self._call("bind"):
            at = self._volume(volume_id).at
            if at is None or at.instance_id != instance_id or not at.there:
                raise _refused("not_ready", f"{volume_id} is not attached to {instance_id}")
            at.bound = True

    def detach(self, volume_id: str, instance_id: str) -> None:
        with self._call("detach"):
            volume = self._held.volumes.get(volume_id)
            at = volume.at if volume is not None else None
            if at is not None and at.instance_id == instance_id and at.leaving_ns is None:
                at.leaving_ns = _after(self._clock.boot_ns(), self._delays.detaching_s)

    def delete_volume(self, volume_id: str) -> None:
        with self._call("delete_volume"):
            volume = self._held.volumes.get(volume_id)
            if volume is None or volume.deleting_ns is not None:
                return
            if volume.at is not None:
                raise _refused("in_use", f"{volume_id} is attached to {volume.at.instance_id}")
            volume.deleting_ns = _after(self._clock.boot_ns(), self._delays.deleting_s)

    def delete_snapshot(self, snapshot_id: str) -> None:
        with self._call("delete_snapshot"):
            self._held.drop(snapshot_id)

    def volume(self, volume_id: str) -> Volume | None:
        with self._call("volume"):
            found = self._held.volumes.get(volume_id)
            return self._show(found) if found is not None and self._is_listed(found) else None

    def snapshot(self, snapshot_id: str) -> CloudSnapshot | None:
        with self._call("snapshot"):
            found = self._held.snapshots.get(snapshot_id)
            if found is None or not self._is_listed(found) or _is_hidden(found):
                return None
            return self._show_snapshot(found)

    def volume_of(self, token: str) -> Volume | None:
        with self._call("volume_of"):
            of_token = (v for v in self._ours(self._held.volumes) if v.tags.get(TAG_TOKEN) == token)
            return next(map(self._show, of_token), None)

    def snapshot_of(self, token: str) -> CloudSnapshot | None:
        with self._call("snapshot_of"):
            of_token = (
                s for s in self._ours(self._held.snapshots) if s.tags.get(TAG_TOKEN) == token
            )
            return next(map(self._show_snapshot, of_token), None)

    def volumes(self) -> tuple[Volume, ...]:
        with self._call("volumes"):
            return tuple(map(self._show, self._ours(self._held.volumes)))

    def snapshots(self) -> tuple[CloudSnapshot, ...]:
        with self._call("snapshots"):
            return tuple(map(self._show_snapshot, self._ours(self._held.snapshots)))

    @contextmanager
    def _call(self, verb: str) -> Iterator[None]:
        """Around every call of the port: what fails it, before it is done or after."""
        with self._lock:
            self.calls.append(verb)
            trouble = self._troubles.pop(len(self.calls), None) or self._next_of.pop(verb, None)
            self._come_true()
            if verb in self.rules.denied:
                raise _refused("denied", f"the role may not {verb}", "UnauthorizedOperation")
            if trouble is Trouble.REFUSED:
                raise _refused("refused", f"planted in {verb}")
            if trouble is Trouble.THROTTLED:
                raise Unavailable("cloud_away", f"planted in {verb}", throttled=True)
            yield
            if trouble is Trouble.LOST:
                raise Unavailable("cloud_away", f"planted in {verb}, which is done")
            if trouble is Trouble.DIED:
                raise Died(verb)

    def _come_true(self) -> None:
        self._held.come_true(self._clock.boot_ns(), attaches=not self.rules.never_attaches)

    def _of_token(self, token: str, asked: object) -> Volume:
        before, volume_id = self._tokens[token]
        if before != asked:
            raise _refused("refused", f"{token} came with other arguments before", _MISMATCH)
        volume = self._held.volumes.get(volume_id)
        if volume is None:
            raise _refused("refused", f"{volume_id} of {token} is gone", _USED_UP)
        return self._show(volume)

    def _check_volume(self, zone: str, size_gib: int, snapshot_id: str | None) -> Key:
        """What keeps a volume from being made; the key is what shows afterwards."""
        if zone not in self._instances.values():
            raise _refused("wrong_zone", f"there is no zone {zone}", "InvalidZone.NotFound")
        if len(self._held.volumes) >= self.rules.volumes_max:
            raise _refused("limit_exceeded", "no more volumes", "VolumeLimitExceeded")
        if snapshot_id is None:
            return self.rules.key
        snapshot = self._held.snapshots.get(snapshot_id)
        if snapshot is None:
            what = f"there is no snapshot {snapshot_id} in {self._region}"
            raise _refused("snapshot_gone", what, "InvalidSnapshot.NotFound", snapshot_id)
        if _is_hidden(snapshot):
            what = f"{snapshot_id} is of account {snapshot.owner_id}, which does not share it"
            raise _refused("snapshot_denied", what, "AuthFailure", snapshot_id)
        if self._clock.boot_ns() < snapshot.ready_ns or snapshot.fails:
            raise _refused("snapshot_not_ready", f"{snapshot_id} is not complete", "IncorrectState")
        if size_gib < snapshot.size_gib:
            raise _refused("too_small", f"{snapshot_id} is larger", "InvalidParameterValue")
        if snapshot.key is Key.REFUSED:
            what = f"the key of {snapshot_id}"
            raise _refused("key_denied", what, "KMSKeyNotAccessibleFault", snapshot_id)
        return snapshot.key

    def _check_attach(self, volume: HeldVolume, instance_id: str, device: str) -> None:
        zone = self._instances.get(instance_id)
        if zone is None:
            raise _refused("refused", f"no instance {instance_id}", "InvalidInstanceID.NotFound")
        if zone != volume.zone:
            what = f"{volume.volume_id} is in {volume.zone}, {instance_id} in {zone}"
            raise _refused("wrong_zone", what, "InvalidVolume.ZoneMismatch")
        if volume.at is not None and volume.at.instance_id != instance_id:
            what = f"{volume.volume_id} is attached to {volume.at.instance_id}"
            raise _refused("attached_elsewhere", what, "VolumeInUse")
        if volume.at is not None or self._clock.boot_ns() < volume.ready_ns:
            raise _refused("not_ready", f"{volume.volume_id} is not available", "IncorrectState")
        if volume.key is Key.ERROR or volume.deleting_ns is not None:
            raise _refused("not_ready", f"{volume.volume_id} is no use any more", "IncorrectState")
        there = list(self._held.attached_to(instance_id))
        if len(there) >= self.rules.attachments_max:
            raise _refused("limit_exceeded", "no more attachments", "AttachmentLimitExceeded")
        if device in {at.device for at in there}:
            raise _refused("device_taken", f"{device} is in use", "InvalidParameterValue")

    def _volume(self, volume_id: str) -> HeldVolume:
        volume = self._held.volumes.get(volume_id)
        if volume is None:
            raise _refused("volume_gone", f"there is no {volume_id}", "InvalidVolume.NotFound")
        return volume

    def _ours(self, held: Mapping[str, _AnyHeld]) -> list[_AnyHeld]:
        """Those of this deployment that show by now, by id."""
        return [
            held[cloud_id]
            for cloud_id in sorted(held)
            if held[cloud_id].tags.get(TAG_DEPLOYMENT) == self._deployment
            and self._is_listed(held[cloud_id])
        ]

    def _is_listed(self, held: HeldVolume | HeldSnapshot) -> bool:
        return self._clock.boot_ns() >= _after(held.made_ns, self._delays.listed_s)

    def _show(self, volume: HeldVolume) -> Volume:
        return show_volume(volume, self._clock.boot_ns(), self._clock.wall_ns())

    def _show_snapshot(self, snapshot: HeldSnapshot) -> CloudSnapshot:
        return show_snapshot(snapshot, self._clock.boot_ns(), self._clock.wall_ns())

    def _tagged(self, token: str, tags: Mapping[str, str]) -> dict[str, str]:
        return {**tags, TAG_DEPLOYMENT: self._deployment, TAG_TOKEN: token}

    def _new_id(self, kind: str) -> str:
        self._next_id += 1
        return f"{kind}-{self._next_id - 1:017x}"


def _is_hidden(snapshot: HeldSnapshot) -> bool:
    return snapshot.owner_id != ACCOUNT and not snapshot.shared


def _after(begin_ns: int, seconds: float) -> int:
    return begin_ns + int(seconds * SECOND_NS)


def _refused(code: str, what: str, aws_code: str = "", about: str = "") -> CloudRefused:
    told = {"aws_code": aws_code, "aws_message": what, "request_id": "fake", "snapshot_id": about}
    return CloudRefused(code, what, **told)
