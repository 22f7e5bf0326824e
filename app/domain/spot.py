"""What a cloud instance is told about itself: who it is, and when it is taken back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.domain.money import NS_PER_SECOND

# The cloud gives two minutes; what names a time further away is not believed, so that no host drains for hours on it.
LONGEST_NOTICE_NS = 600 * NS_PER_SECOND
USUAL_NOTICE_NS = 120 * NS_PER_SECOND
# A notice that is read again differs by the reading's own delay; what differs by more is another one.
SAME_NOTICE_NS = 10 * NS_PER_SECOND
# A notice that is not there any more for so long was withdrawn.
WITHDRAWN_NS = 60 * NS_PER_SECOND


class Announcement(StrEnum):
    """What the cloud says to an instance: that it is taken back, or only that another place would be safer."""

    INTERRUPTION = "interruption"
    REBALANCE = "rebalance"


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """The instance that this process runs on, as its metadata service names it."""

    instance_id: str
    zone: str
    region: str


@dataclass(frozen=True, slots=True)
class Notice:
    """An interruption that is announced: `action` is the cloud's word (terminate, stop, hibernate).

    `in_ns` is how long it is until then, 0 if that is past.
    """

    action: str
    in_ns: int


def notice(action: str, left_ns: int | None) -> Notice:
    """A notice with its time within reason; None is a time that could not be read, which is taken for the usual one."""
    if left_ns is None:
        return Notice(action, USUAL_NOTICE_NS)
    return Notice(action, max(0, min(left_ns, LONGEST_NOTICE_NS)))
