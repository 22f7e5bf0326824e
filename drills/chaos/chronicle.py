"""What truly happened in an episode, in one order: kept by the driver, and never asked of the product."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class What(StrEnum):
    """Kinds of entries: those of the product's own steps, and those of what befell it."""

    OPENED = "opened"
    ADOPTED = "adopted"
    INTENT = "intent"
    STARTED = "command started in the guest"
    ENDED = "command ended in the guest"
    SAVED = "result saved"
    KEPT = "kept with its verdict"
    READY = "handed over"
    CLOSED = "closed"
    DIED = "machine died"
    KILLED_BY = "machine ended by a worker"
    BEFELL = "befell"
    WORKER = "its worker"
    AWAY = "no database for long"
    ASKED = "asked"


@dataclass(frozen=True, slots=True)
class Entry:
    """`subject` is a machine (an attempt) or a fork; `where` and `detail` say more in the words of who did it."""

    number: int
    seconds: float
    subject: str
    what: What
    where: str = ""
    detail: str = ""

    def __str__(self) -> str:
        more = " ".join(part for part in (self.where, self.detail) if part)
        return f"{self.number:6} {self.seconds:9.3f} s  {self.subject}  {self.what.value}  {more}"


@dataclass(slots=True)
class Chronicle:
    """`fork_of` maps machines to forks. `surprises` are errors that no step may end with, and broken fences."""

    entries: list[Entry] = field(default_factory=list)
    by_subject: defaultdict[str, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    machines: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    fork_of: dict[str, str] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)

    def note(
        self, seconds: float, subject: str, what: What, where: str = "", detail: str = ""
    ) -> None:
        entry = Entry(len(self.entries), seconds, subject, what, where, detail)
        self.entries.append(entry)
        self.by_subject[subject].append(entry)

    def opened(self, seconds: float, attempt_id: str, fork_id: str, claim: str) -> None:
        """A fork got a machine."""
        self.fork_of[attempt_id] = fork_id
        self.machines[fork_id].append(attempt_id)
        self.note(seconds, attempt_id, What.OPENED, claim)

    def of_fork(self, fork_id: str) -> Iterator[Entry]:
        """All that happened to a fork and its machines, in order."""
        subjects = (fork_id, *self.machines[fork_id])
        found = [entry for subject in subjects for entry in self.by_subject[subject]]
        yield from sorted(found, key=lambda entry: entry.number)

    def told(self, fork_id: str) -> Iterable[str]:
        """The same, for people."""
        return map(str, self.of_fork(fork_id))
