"""The usage statement: what was charged and, apart from it, what the cloud is estimated to have cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import TypeVar

from app.domain.estimate import Hour, Share, Use, divided, hour, on_demand_micros_per_hour
from app.domain.instant import instant
from app.domain.machine import Shape
from app.domain.money import NS_PER_SECOND, usd
from app.domain.rates import RateCard
from app.domain.usage import NS_PER_DAY, By, Cell, Spent, Used, Window
from app.errors import BadRequest

MAX_ROWS = 10_000
# An opening that was being written when the rows were read is in none of them; no write takes longer than this.
SETTLED_NS = 60 * NS_PER_SECOND
NOTE = (
    "charged_usd is exact: the charges of machines that have ended, spread over the hours in which they lived; hours "
    "from complete_until on may still gain. The estimate is arithmetic on the present rate card, not a bill: the "
    "cloud's own cost reports are the account's, lag by about a day, and also cover idle hosts, storage and traffic."
)
TIMES = frozenset({By.HOUR, By.DAY})

Facts = dict[str, object]
Key = tuple[int | str, ...]
T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Line:
    """What one project spent in one hour, on one snapshot where that was asked for, with its share of the estimate."""

    hour_ns: int
    project_id: str
    snapshot: str
    spent: Spent
    share: Share


@dataclass(frozen=True, slots=True)
class Estimated:
    """The lines of all projects, and the hours that they are parts of, by their beginnings."""

    lines: tuple[Line, ...]
    hours: Mapping[int, Hour]


def usage_statement(
    used: Used, window: Window, by: tuple[By, ...], card: RateCard, project_id: str | None
) -> Facts:
    """The JSON shape: a row for each of what is asked for, and a total that the rows add up to.

    A project's statement has its own rows alone, the operator's (None) everybody's. What nobody used of a commitment
    is no project's and no snapshot's: it stands in rows that are of time alone, and in the total, where
    `committed = used + used by others + idle`. Raises BadRequest(too_many_rows).
    """
    estimated = estimate(used, window, card)
    own = [line for line in estimated.lines if project_id in (None, line.project_id)]
    return {
        "from": instant(window.begin_ns),
        "until": instant(window.end_ns),
        "as_of": instant(used.now_ns),
        "complete_until": instant(_complete_until(used)),
        "project": project_id,
        "by": [each.value for each in by],
        "rows": list(_rows(own, estimated.hours, by)),
        "total": _amounts(own, estimated.hours.values()),
        "card_version": card.version,
        "note": NOTE,
    }


def estimate(used: Used, window: Window, card: RateCard) -> Estimated:
    """Estimate the hours of a window in which something ran or was owed.

    First an hour is divided among projects and shapes, then each part among its snapshots: so a project's figures are
    the same whatever the rows stand for.
    """
    by_hour = _grouped(used.cells, attrgetter("hour_ns"))
    prices = {shape: on_demand_micros_per_hour(card, shape) for shape in _shapes(used.cells)}
    lines: list[Line] = []
    hours: dict[int, Hour] = {}
    for begin_ns in window.hours():
        groups = _grouped(by_hour.get(begin_ns, ()), attrgetter("project_id", "shape"))
        parts = [groups[key] for key in sorted(groups)]
        uses = [_use(part, prices) for part in parts]
        seen = hour(card.commitment, begin_ns, used.now_ns - begin_ns, uses)
        for part, share in zip(parts, seen.shares, strict=True):
            lines += _lines(part, share)
        if parts or seen.committed_micros:
            hours[begin_ns] = seen
    return Estimated(tuple(lines), hours)


def _complete_until(used: Used) -> int:
    settled_ns = used.now_ns - SETTLED_NS
    return settled_ns if used.live_since_ns is None else min(settled_ns, used.live_since_ns)


def _shapes(cells: Iterable[Cell]) -> frozenset[Shape]:
    return frozenset(cell.shape for cell in cells)


def _use(part: list[Cell], prices: Mapping[Shape, int | None]) -> Use:
    shape = part[0].shape
    return Use(shape.vcpus, sum(cell.spent.lived_ns for cell in part), prices[shape])


def _lines(part: list[Cell], share: Share) -> Iterator[Line]:
    cells = sorted(part, key=attrgetter("snapshot"))
    shares = divided(share, [cell.spent.lived_ns for cell in cells])
    for cell, its_share in zip(cells, shares, strict=True):
        yield Line(cell.hour_ns, cell.project_id, cell.snapshot, cell.spent, its_share)


def _rows(own: list[Line], hours: Mapping[int, Hour], by: tuple[By, ...]) -> Iterator[Facts]:
    lines = _grouped(own, lambda line: _key(by, line.hour_ns, line.project_id, line.snapshot))
    of_time = TIMES.issuperset(by)
    whole = _grouped(hours, lambda begin_ns: _key(by, begin_ns, "", "")) if of_time else {}
    keys = lines.keys() | whole.keys()
    if len(keys) > MAX_ROWS:
        raise BadRequest(
            "too_many_rows",
            f"the statement would have {len(keys)} rows of {MAX_ROWS} at most; ask for fewer hours at a time",
            limit=MAX_ROWS,
        )
    unasked: Facts = {each.value: None for each in By}
    for key in sorted(keys):
        named = {each.value: _shown(each, value) for each, value in zip(by, key, strict=True)}
        its_hours = [hours[begin_ns] for begin_ns in whole.get(key, ())] if of_time else None
        yield {**unasked, **named, **_amounts(lines.get(key, []), its_hours)}


def _key(by: tuple[By, ...], hour_ns: int, project_id: str, snapshot: str) -> Key:
    values: dict[By, int | str] = {
        By.HOUR: hour_ns,
        By.DAY: hour_ns - hour_ns % NS_PER_DAY,
        By.PROJECT: project_id,
        By.SNAPSHOT: snapshot,
    }
    return tuple(values[each] for each in by)


def _shown(by: By, value: object) -> object:
    if by is By.HOUR and isinstance(value, int):
        return instant(value)
    if by is By.DAY and isinstance(value, int):
        return datetime.fromtimestamp(value // NS_PER_SECOND, tz=UTC).date().isoformat()
    return value


def _amounts(lines: list[Line], hours: Collection[Hour] | None) -> Facts:
    """A row's amounts; `hours` are those that it is the whole of, None if it is a part of them."""
    spent = Spent.total(line.spent for line in lines)
    share = Share.total(line.share for line in lines)
    return {
        "forks": spent.forks,
        "attempts": spent.attempts,
        "fork_seconds": round(spent.lived_ns / NS_PER_SECOND, 3),
        "charged_usd": usd(spent.charged_micros),
        "verification_usd": usd(spent.verification_micros),
        "tasks_usd": usd(spent.tasks_micros),
        "environment_usd": usd(spent.environment_micros),
        "accruing_usd": usd(spent.accruing_micros),
        "estimate": {
            **_commitment(share, hours),
            "used_usd": usd(share.used_micros),
            "overflow_usd": usd(share.overflow_micros),
            "on_demand_equivalent_usd": usd(share.on_demand_micros),
            "unpriced_fork_seconds": round(share.unpriced_ns / NS_PER_SECOND, 3),
        },
    }


def _commitment(share: Share, hours: Collection[Hour] | None) -> Facts:
    if hours is None:
        return {"committed_usd": None, "idle_usd": None, "used_by_others_usd": None}
    committed = sum(each.committed_micros for each in hours)
    used = sum(each.used_micros for each in hours)
    return {
        "committed_usd": usd(committed),
        "idle_usd": usd(committed - used),
        "used_by_others_usd": usd(used - share.used_micros),
    }


def _grouped(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for thing in things:
        groups[key(thing)].append(thing)
    return groups
