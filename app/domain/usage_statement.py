"""The usage statement: what was charged and, apart from it, what the cloud is estimated to have cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import TypeVar

from app.domain.estimate import Hour, Share, Use, divided, hour, on_demand_micros_per_hour
from app.domain.instant import instant
from app.domain.machine import Shape
from app.domain.money import NS_PER_HOUR, NS_PER_SECOND, usd
from app.domain.rates import RateCard
from app.domain.storage import Kept, pieces
from app.domain.usage import NS_PER_DAY, By, Cell, Spent, Used, Window
from app.errors import BadRequest

MAX_ROWS = 10_000
# What is kept is cut at the hours or days of the rows; so many pieces take about two seconds.
MAX_PIECES = 500_000
# An opening that was being written when the rows were read is in none of them; no write takes longer than this.
SETTLED_NS = 60 * NS_PER_SECOND
NOTE = (
    "charged_usd is exact: the charges of machines that have ended, spread over the hours in which they lived; hours "
    "from complete_until on may still gain. The estimate is arithmetic on the present rate card, not a bill: the "
    "cloud's own cost reports are the account's, lag by about a day, and also cover idle hosts, other storage and "
    "traffic. storage_usd counts a snapshot with the size of its volume; the cloud bills the blocks that it holds and "
    "that no other one has, which is less."
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
class Storage:
    """What was kept, for one row of the statement: its hour, project (empty: nobody's) and snapshot."""

    hour_ns: int
    project_id: str
    snapshot: str
    kept: Kept


@dataclass(frozen=True, slots=True)
class Estimated:
    """The lines of all projects, and the hours that they are parts of, by their beginnings."""

    lines: tuple[Line, ...]
    hours: Mapping[int, Hour]


@dataclass(frozen=True, slots=True)
class Own:
    """What a statement, or one row of it, is the sum of. `priced`: the card has prices of storage."""

    lines: Sequence[Line]
    storage: Sequence[Storage]
    priced: bool


def usage_statement(
    used: Used, window: Window, by: tuple[By, ...], card: RateCard, project_id: str | None
) -> Facts:
    """The JSON shape: a row for each of what is asked for, and a total that the rows add up to.

    A project's statement has its own rows alone, the operator's (None) everybody's. What nobody used of a commitment
    is no project's and no snapshot's: it stands in rows that are of time alone, and in the total, where
    `committed = used + used by others + idle`. Nor are the volumes on hosts any project's: the operator's statement has
    them, under no project. Raises BadRequest(too_many_rows).
    """
    estimated = estimate(used, window, card)
    own = Own(
        [line for line in estimated.lines if project_id in (None, line.project_id)],
        [each for each in storage(used, window, by, card) if project_id in (None, each.project_id)],
        card.storage is not None,
    )
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


def storage(used: Used, window: Window, by: tuple[By, ...], card: RateCard) -> Iterator[Storage]:
    """What was kept in a window, cut where its rows are. However it is cut, the parts add up.

    Raises BadRequest(too_many_rows).
    """
    step_ns = NS_PER_HOUR if By.HOUR in by else NS_PER_DAY if By.DAY in by else None
    count = 0
    for each in used.stored:
        for at_ns, kept in pieces(each, window, used.now_ns, step_ns, card.storage):
            count += 1
            if count > MAX_PIECES:
                raise _too_many("be made of", "pieces", MAX_PIECES)
            hour_ns = at_ns - at_ns % NS_PER_HOUR
            yield Storage(hour_ns, each.project_id or "", each.snapshot, kept)


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


def _rows(own: Own, hours: Mapping[int, Hour], by: tuple[By, ...]) -> Iterator[Facts]:
    def key_of(part: Line | Storage) -> Key:
        return _key(by, part.hour_ns, part.project_id, part.snapshot)

    lines, stored = _grouped(own.lines, key_of), _grouped(own.storage, key_of)
    of_time = TIMES.issuperset(by)
    whole = _grouped(hours, lambda begin_ns: _key(by, begin_ns, "", "")) if of_time else {}
    keys = lines.keys() | stored.keys() | whole.keys()
    if len(keys) > MAX_ROWS:
        raise _too_many("have", "rows", MAX_ROWS)
    unasked: Facts = {each.value: None for each in By}
    for key in sorted(keys):
        named = {each.value: _shown(each, value) for each, value in zip(by, key, strict=True)}
        its_hours = [hours[begin_ns] for begin_ns in whole.get(key, ())] if of_time else None
        part = Own(lines.get(key, []), stored.get(key, []), own.priced)
        yield {**unasked, **named, **_amounts(part, its_hours)}


def _too_many(verb: str, what: str, limit: int) -> BadRequest:
    return BadRequest(
        "too_many_rows",
        f"the statement would {verb} more than {limit} {what}; ask for fewer hours at a time",
        limit=limit,
    )


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
    # What is no project's, or of a snapshot that is not known any more.
    return value or None


def _amounts(own: Own, hours: Collection[Hour] | None) -> Facts:
    """A row's amounts; `hours` are those that it is the whole of, None if it is a part of them."""
    spent = Spent.total(line.spent for line in own.lines)
    share = Share.total(line.share for line in own.lines)
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
            **_stored(own),
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


def _stored(own: Own) -> Facts:
    kept = Kept.total(each.kept for each in own.storage)
    volumes, snapshots = kept.volume_micros, kept.snapshot_micros
    return {
        "storage_usd": usd(volumes + snapshots) if own.priced else None,
        "volumes_usd": usd(volumes) if own.priced else None,
        "snapshots_usd": usd(snapshots) if own.priced else None,
        "volume_gib_hours": round(kept.volume_gib_ns / NS_PER_HOUR, 3),
        "snapshot_gib_hours": round(kept.snapshot_gib_ns / NS_PER_HOUR, 3),
    }


def _grouped(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for thing in things:
        groups[key(thing)].append(thing)
    return groups
