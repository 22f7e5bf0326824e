"""Who used what, hour by hour: machines' lives cut at the hours of UTC, so that the pieces add up to the whole.

A machine's charge is spread over the hours in which it lived, and not booked in the hour of its end. So an hour that is
over may still gain, until every machine that lived in it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Self

from app.domain.account import month_of, month_start_ns
from app.domain.cloud import ResourceKind
from app.domain.machine import Shape
from app.domain.money import NS_PER_HOUR
from app.errors import BadRequest

NS_PER_DAY = 24 * NS_PER_HOUR
MAX_DAYS = 400
# Cells are what a statement is made of; so many take about a second to add up.
MAX_CELLS = 200_000


class By(StrEnum):
    """What the rows of a statement stand for."""

    HOUR = "hour"
    DAY = "day"
    PROJECT = "project"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Window:
    """Whole hours of UTC, from `begin_ns` up to `end_ns`, ns since the epoch."""

    begin_ns: int
    end_ns: int

    def hours(self) -> range:
        """The beginning of each hour."""
        return range(self.begin_ns, self.end_ns, NS_PER_HOUR)


@dataclass(frozen=True, slots=True)
class Spent:
    """What machines did and cost. `forks` got their first machine, `attempts` are machines that began.

    The three parts are charges of machines that have ended; `accruing_micros` is what those that live would cost if
    they ended now. `lived_ns` is of both.
    """

    forks: int = 0
    attempts: int = 0
    lived_ns: int = 0
    verification_micros: int = 0
    tasks_micros: int = 0
    environment_micros: int = 0
    accruing_micros: int = 0

    @property
    def charged_micros(self) -> int:
        return self.verification_micros + self.tasks_micros + self.environment_micros

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        parts = tuple(parts)
        return cls(*(sum(getattr(part, name) for part in parts) for name in AMOUNTS))


AMOUNTS = tuple(field.name for field in fields(Spent))


@dataclass(frozen=True, slots=True)
class Cell:
    """What was spent in one hour by one project on forks of one shape and, where that is asked for, one snapshot.

    A snapshot's name without a version is what building it cost. An empty one was not asked for.
    """

    hour_ns: int
    project_id: str
    shape: Shape
    snapshot: str
    spent: Spent


@dataclass(frozen=True, slots=True)
class Stored:
    """A volume or snapshot of the cloud account, from when it was made until it was gone (None: it is there), by the
    database's clock.

    `project_id` None: no project's, as the volumes on hosts are, from which any may fork. `snapshot` is the one that
    it holds; a name without a version is of a build. An empty one was not asked for, or is not known any more.
    """

    kind: ResourceKind
    size_gib: int
    begin_ns: int
    end_ns: int | None
    project_id: str | None
    snapshot: str


@dataclass(frozen=True, slots=True)
class Used:
    """The cells of a window, each once, as they were at `now_ns`, when the oldest machine that lives began, and what
    the cloud account kept at any moment of it.
    """

    now_ns: int
    live_since_ns: int | None
    cells: tuple[Cell, ...]
    stored: tuple[Stored, ...] = ()


def window(begin_ns: int | None, end_ns: int | None, now_ns: int) -> Window:
    """What is asked for in whole hours, rounded outwards, up to the hour that is under way.

    Without a beginning it is that of the month; without an end it is now. Raises BadRequest(bad_window).
    """
    begin_ns = month_start_ns(month_of(now_ns)) if begin_ns is None else begin_ns
    end_ns = now_ns if end_ns is None else end_ns
    if begin_ns > now_ns:
        raise BadRequest("bad_window", "`from` has not come yet")
    if begin_ns >= end_ns:
        raise BadRequest("bad_window", "`from` is not before `until`")
    cut = Window(_hour_of(begin_ns), -(-min(end_ns, now_ns + 1) // NS_PER_HOUR) * NS_PER_HOUR)
    if cut.end_ns - cut.begin_ns > MAX_DAYS * NS_PER_DAY:
        raise BadRequest(
            "bad_window", f"a statement is of {MAX_DAYS} days at most", limit_days=MAX_DAYS
        )
    return cut


def by_hour(begin_ns: int, end_ns: int, whole: Spent) -> Iterator[tuple[int, Spent]]:
    """A life cut at the hours: the beginning of each and what was spent in it. The pieces add up to `whole`.

    Money flows evenly over a life, and verification comes first, as it was lived. A piece is the difference of two
    rounded sums from the beginning, so that no micro-dollar is lost or made. What began is counted where it began.
    """
    before = Spent()
    hour_ns = _hour_of(begin_ns)
    while True:
        so_far = _until(whole, hour_ns + NS_PER_HOUR - begin_ns, end_ns - begin_ns)
        yield hour_ns, _less(so_far, before)
        hour_ns, before = hour_ns + NS_PER_HOUR, so_far
        if hour_ns >= end_ns:
            return


def gathered(cells: Iterable[Cell], most: int = MAX_CELLS) -> tuple[Cell, ...]:
    """Each cell once, with the sum of what is given for it. Raises BadRequest(too_many_rows) above `most`."""
    sums: dict[tuple[int, str, Shape, str], list[int]] = {}
    for cell in cells:
        key = (cell.hour_ns, cell.project_id, cell.shape, cell.snapshot)
        amounts = sums.setdefault(key, [0] * len(AMOUNTS))
        for at, name in enumerate(AMOUNTS):
            amounts[at] += getattr(cell.spent, name)
        if len(sums) > most:
            raise BadRequest(
                "too_many_rows",
                f"the statement would be made of more than {most} pieces; ask for fewer hours at a time",
                limit=most,
            )
    return tuple(Cell(*key, Spent(*amounts)) for key, amounts in sums.items())


def _hour_of(moment_ns: int) -> int:
    return moment_ns - moment_ns % NS_PER_HOUR


def _until(whole: Spent, elapsed_ns: int, lived_ns: int) -> Spent:
    """What was spent of a life when so much of it was over."""
    if elapsed_ns >= lived_ns:
        return whole
    charged = whole.charged_micros * elapsed_ns // lived_ns
    verification = min(charged, whole.verification_micros)
    tasks = min(charged - verification, whole.tasks_micros)
    return Spent(
        forks=whole.forks,
        attempts=whole.attempts,
        lived_ns=whole.lived_ns * elapsed_ns // lived_ns,
        verification_micros=verification,
        tasks_micros=tasks,
        environment_micros=charged - verification - tasks,
        accruing_micros=whole.accruing_micros * elapsed_ns // lived_ns,
    )


def _less(so_far: Spent, before: Spent) -> Spent:
    return Spent(*(getattr(so_far, name) - getattr(before, name) for name in AMOUNTS))
