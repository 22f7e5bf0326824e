"""Who changed what: an entry of the audit log. It names things and people, and holds neither bodies nor secrets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.domain.instant import instant

# What a caller says of itself stays short, whatever it says.
MAX_TARGET_CHARS = 200
# A change that was taken on by a row of its own, which tells what came of it.
ACCEPTED = 202


class Outcome(StrEnum):
    """UNKNOWN: whoever did it did not live to say; it may have been done."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Entry:
    """`actor` is a key's id, or `operator:` and a user of the operating system. `status` is that of HTTP, for operators
    too: 200, or their error's.

    An entry without a project is about the deployment. `at_ns` is the database's, given when it is written.
    """

    entry_id: str
    actor: str
    action: str
    project_id: str | None = None
    target: str | None = None
    status: int | None = None
    request_id: str | None = None
    client: str | None = None
    at_ns: int = 0

    @property
    def outcome(self) -> Outcome:
        if self.status is None:
            return Outcome.UNKNOWN
        if self.status < 400:
            return Outcome.DONE
        return Outcome.REFUSED if self.status < 500 else Outcome.FAILED

    def as_dict(self) -> dict[str, object]:
        """The JSON shape of the contract."""
        return {
            "entry_id": self.entry_id,
            "at": instant(self.at_ns),
            "actor": self.actor,
            "action": self.action,
            "target": self.target,
            "outcome": self.outcome.value,
            "status": self.status,
            "request_id": self.request_id,
            "client": self.client,
        }


@dataclass(frozen=True, slots=True)
class Sought:
    """Which entries; None leaves it open. `begin_ns` is of the time, `until_ns` is not."""

    actor: str | None = None
    action: str | None = None
    begin_ns: int | None = None
    until_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page of entries ends: newest first, and by id what is of one instant."""

    at_ns: int
    entry_id: str


def place_of(entry: Entry) -> Place:
    """The page after this entry begins here."""
    return Place(entry.at_ns, entry.entry_id)


def named(target: str) -> str:
    """A target as it is kept."""
    return target[:MAX_TARGET_CHARS]
