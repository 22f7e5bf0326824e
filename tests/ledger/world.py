"""A cluster without I/O that spends by the product's own ledger: one database, two billing workers, three hosts.

Hosts have clocks of their own, workers that crash, keepers that kill by a file; messages come late, twice or never.
What may happen in it is in `events.py`, what must hold in `laws.py`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from app.domain.fork import ForkState
from app.domain.ledger import Split
from app.domain.money import NS_PER_SECOND
from tests.ledger.books import Attempt, Books, End, Fork

T = TypeVar("T")
Task = Callable[[], None]

DATABASE_BEGAN_NS = 1_700_000_000 * NS_PER_SECOND


@dataclass(slots=True)
class Chance:
    """A number that is spent choice by choice."""

    left: int

    def below(self, n: int) -> int:
        self.left, chosen = divmod(self.left, n)
        return chosen

    def one_in(self, n: int) -> bool:
        return self.below(n) == n - 1

    def pick(self, items: list[T]) -> T | None:
        return items[self.below(len(items))] if items else None


@dataclass(slots=True)
class Machine:
    """What is on a host for an attempt; `deadline_boot_ns` is the file that its keeper goes by.

    A machine that is `prevented` is never born. A death is `witnessed` unless its host lost power.
    """

    deadline_boot_ns: int
    start_by_boot_ns: int
    born_boot_ns: int | None = None
    ended_boot_ns: int | None = None
    late_ns: int = 0
    prevented: bool = False
    witnessed: bool = True
    at_deadline: bool = False

    @property
    def lives(self) -> bool:
        return self.born_boot_ns is not None and self.ended_boot_ns is None


@dataclass(slots=True)
class Host:
    """`boot_ns` goes on while it is suspended; then nothing on it runs. `slow_ns` is how late its keepers act.

    `heard_ns` is when it last said that it lives, by the database's clock.
    """

    name: str
    offset_ns: int
    boot: int = 0
    worker: int = 0
    works: bool = True
    suspended: bool = False
    partitioned: bool = False
    frozen_boot_ns: int = 0
    slow_ns: int = 0
    clock_read_ns: int | None = None
    heard_ns: int = DATABASE_BEGAN_NS

    @property
    def claim(self) -> str:
        return f"{self.name}.{self.worker}"

    @property
    def boot_id(self) -> str:
        return f"{self.name}:{self.boot}"

    @property
    def acts(self) -> bool:
        return self.works and not self.suspended and not self.partitioned

    def boot_ns(self, now_ns: int) -> int:
        return now_ns + self.offset_ns


@dataclass(frozen=True, slots=True)
class Message:
    """A closing on its way to the database."""

    attempt_id: str
    claim: str
    end: End
    joining: tuple[Fork, ...] = ()


@dataclass(slots=True)
class World:
    """All that there is, and what was `reached` so far. `now_ns` is the true time, which nobody in it can read."""

    books: Books = field(default_factory=Books)
    now_ns: int = 0
    hosts: list[Host] = field(
        default_factory=lambda: [Host("a", 5), Host("b", 10**12), Host("c", 77 * 10**15)]
    )
    machines: dict[str, Machine] = field(default_factory=dict)
    messages: deque[Message] = field(default_factory=deque)
    bills: tuple[deque[Task], deque[Task]] = field(default_factory=lambda: (deque(), deque()))
    rung: list[str] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    refusals: list[tuple[int, int, int]] = field(default_factory=list)
    smallest_caps: dict[str, int] = field(default_factory=dict)
    closed: dict[str, Split] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)
    leases_noted: dict[str, int] = field(default_factory=dict)
    left_over: dict[str, int] = field(default_factory=dict)
    to_stop: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for host in self.hosts:
            self.books.heard_ns[host.name] = host.heard_ns

    @property
    def database_ns(self) -> int:
        return DATABASE_BEGAN_NS + self.now_ns

    def host(self, attempt: Attempt) -> Host:
        return next(host for host in self.hosts if host.name == attempt.host)

    def runs_now(self, attempt: Attempt) -> bool:
        """Whether its machine executes at this moment."""
        return self.machines[attempt.attempt_id].lives and not self.host(attempt).suspended

    def waits_on(self, host: Host) -> bool:
        """Whether a fork that is placed on a host waits for a machine."""
        forks = self.books.forks.values()
        return any(fork.state is ForkState.QUEUED and fork.host == host.name for fork in forks)

    def boot_ns(self, host: Host) -> int:
        return host.boot_ns(self.now_ns)
