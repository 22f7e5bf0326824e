"""Epochs of a deployment: how those who run machines know that the database was put back to an earlier state, and does
not know all that they run.

A deployment is the history of one database. Its *epoch* is a number that an operator makes greater once, when the
database was restored from a backup; a machine belongs to the epoch in which it was started. Its *beat* only ever grows
within an epoch: whoever remembers a greater one than the database has knows that the database went back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from app.domain.money import NS_PER_SECOND

# Of a deployment that was never restored, and of machines and rows from before there were epochs.
FIRST_EPOCH = 1
# A host may claim to remember anything; no epoch is later than the time at which it is told, and some.
_FUTURE_S = 86_400


@dataclass(frozen=True, slots=True)
class Deployment:
    """What the database says of itself. `since_ns`: when its epoch began, by its own clock; 0 for the first."""

    deployment_id: str
    epoch: int = FIRST_EPOCH
    since_ns: int = 0
    beat: int = 0

    def restored_within(self, grace_ns: int, now_ns: int) -> bool:
        """Whether it was restored so lately that what it does not know may still be somebody's."""
        return self.epoch > FIRST_EPOCH and now_ns < self.since_ns + grace_ns


@dataclass(frozen=True, slots=True)
class Seen:
    """The latest that somebody saw of a deployment, as he remembers it on his own disk.

    `epoch_wall_ns`: when he first saw this epoch, by his own wall clock; 0 if it was there from the beginning.
    `bundles` are those that lay here then: the database need not know them, and they are not leaks at once.
    """

    deployment_id: str
    epoch: int
    beat: int
    epoch_wall_ns: int = 0
    bundles: tuple[str, ...] = ()

    def spared(self, grace_ns: int, wall_ns: int) -> frozenset[str]:
        """The bundles that are left alone for now."""
        spares = self.epoch_wall_ns > 0 and wall_ns < self.epoch_wall_ns + grace_ns
        return frozenset(self.bundles) if spares else frozenset()


class Course(StrEnum):
    """How a database stands to what somebody remembers of it."""

    ONWARD = "onward"
    WENT_BACK = "went_back"  # it has lost what he saw: restored, and nobody has said so yet
    NEW_EPOCH = "new_epoch"  # it was restored, and that was said
    ANOTHER = "another"  # it is another deployment's


def course(seen: Seen | None, now: Deployment) -> Course:
    """What became of a deployment since it was `seen` last. Read the memory first, the database after it: of two that
    share a memory the other one may have seen more meanwhile.
    """
    if seen is None:
        return Course.ONWARD
    if seen.deployment_id != now.deployment_id:
        return Course.ANOTHER
    if now.epoch > seen.epoch:
        return Course.NEW_EPOCH
    return Course.WENT_BACK if is_ahead((seen.epoch, seen.beat), now) else Course.ONWARD


def is_ahead(remembered: tuple[int, int], now: Deployment) -> bool:
    """Whether somebody remembers an epoch and a beat that the database has not come to."""
    return remembered > (now.epoch, now.beat)


def seen_of(
    now: Deployment, before: Seen | None, wall_ns: int, bundles: Iterable[str] = ()
) -> Seen:
    """What is remembered from now on; `bundles` are those that lie here where an epoch is seen to begin."""
    if before is None or before.deployment_id != now.deployment_id:
        return Seen(now.deployment_id, now.epoch, now.beat)
    if before.epoch == now.epoch:
        return replace(before, beat=max(now.beat, before.beat))
    return Seen(now.deployment_id, now.epoch, now.beat, wall_ns, tuple(sorted(bundles)))


def next_epoch(now: Deployment, now_ns: int, remembered: Iterable[int] = ()) -> int:
    """The number of the epoch that begins now: the database's time in seconds, so that no two histories that part at
    one backup ever give the same; greater than any epoch that a host remembers.
    """
    now_s = now_ns // NS_PER_SECOND
    believed = (epoch + 1 for epoch in remembered if epoch <= now_s + _FUTURE_S)
    return max(now.epoch + 1, now_s, *believed)


def outvoted(ahead: int, heard_of: int) -> bool:
    """Whether hosts say that the database went back: most of those that are heard of. One alone may lie."""
    return ahead * 2 > heard_of


def told(remembered: tuple[int, int]) -> str:
    """An epoch and a beat in words."""
    epoch, beat = remembered
    return f"beat {beat} of epoch {epoch}"
